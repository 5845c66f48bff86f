"""Networks traced before, by config, library versions and the source of the tracer itself."""

import hashlib
import json
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...errors import CacheError
from ...kept import find, keep
from ...plugins.discovery import plugins
from ..network import Network
from .config_facts import cleaned, depends_on_length

_LIBRARIES = ("torch", "transformers", "onnx_ir")
_FILE = "network.onnx"


def key(config: dict[str, Any], max_seq_len: int) -> str:
    """A digest of everything that a trace depends on."""
    facts = {
        "config": cleaned(config),
        "versions": {library: version(library) for library in _LIBRARIES},
        "source": _source_digest(),
        "max_seq_len": max_seq_len if depends_on_length(config) else None,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def load(key: str) -> Network | None:
    """The stored network, or None where there is none that is whole."""
    folder = find("traces", key)
    return Network.load(folder / _FILE) if folder is not None else None


def store(key: str, network: Network) -> None:
    """Keep a network; a cache that cannot be written to is no error."""
    with suppress(CacheError):
        keep("traces", key, lambda folder: network.save(folder / _FILE))


def _source_digest() -> str:
    digest = hashlib.sha256()
    builder = Path(__file__).parents[1]
    stored = [builder / "network.py", builder.parent / "checkpoint" / "assembly.py"]  # what caches hold
    functions = [plugin.folder / "trace.py" for plugin in plugins()]
    own = sorted(Path(__file__).parent.glob("*.py"))
    for path in [*own, *stored, *(path for path in functions if path.is_file())]:
        digest.update(path.read_bytes())
    return digest.hexdigest()
