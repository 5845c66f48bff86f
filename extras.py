"""How to get the libraries of an extra: by the way that enginesmith itself was installed, for no index need have it."""

import json
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

_NAME = "enginesmith"
_HOME = Path(__file__).parent


def install_command(extra: str) -> str:
    """The command that installs the libraries of `extra`.

    What was installed from comes from the installation's direct_url.json (PEP 610): a folder, an archive, a repository,
    or an index where there is none. A clone that was never installed is its own folder.
    """
    from importlib.metadata import distributions  # slow, and seldom needed

    # In a clone, Python also finds what setuptools noted in the clone itself, which says nothing of an origin.
    found = list(distributions(name=_NAME))
    if not found:
        return _from_folder(_HOME, extra, editable=True)
    said = next((text for one in found if (text := one.read_text("direct_url.json"))), None)
    if said is None:
        return f"pip install {shlex.quote(f'{_NAME}[{extra}]')}"
    origin: dict[str, Any] = json.loads(said)
    url = urlsplit(origin["url"])
    if "dir_info" in origin and url.scheme == "file":
        return _from_folder(Path(unquote(url.path)), extra, editable=origin["dir_info"].get("editable", False))
    return f"pip install {shlex.quote(f'{_NAME}[{extra}] @ {_requirement(origin)}')}"


def _from_folder(folder: Path, extra: str, *, editable: bool) -> str:
    return f"pip install {'-e ' if editable else ''}{shlex.quote(f'{folder}[{extra}]')}"


def _requirement(origin: dict[str, Any]) -> str:
    """The URL of an archive or a repository, as requirements name it (PEP 440, PEP 508)."""
    url: str = origin["url"]
    if (vcs := origin.get("vcs_info")) is not None:
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return f"{url}#subdirectory={origin['subdirectory']}" if "subdirectory" in origin else url
