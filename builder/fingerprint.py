"""Digests of what results were made from: inputs, files, and our own source."""

import hashlib
import json
from functools import cache
from pathlib import Path

from ..plugins.discovery import plugins

_PACKAGE = Path(__file__).resolve().parents[1]
_CODE = (".py", ".h", ".cpp")


def digest(inputs: object) -> str:
    """A digest of JSON values."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


@cache
def code_digest() -> str:
    """A digest of all our own source and of the plugins: cached results are made anew after any change of either."""
    packages = [path for path in _PACKAGE.iterdir() if (path / "__init__.py").is_file()]
    folders = {*packages, *(plugin.folder for plugin in plugins())}
    state = hashlib.sha256()
    for path in sorted({*_PACKAGE.glob("*.py"), *(path for folder in folders for path in folder.rglob("*"))}):
        if path.suffix in _CODE:
            state.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return state.hexdigest()


def stamp(path: Path) -> list[list[object]]:
    """Name, size and time of a file, or of a folder's files: what changes when they do."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    stats = [(file.name, file.stat()) for file in files]
    return [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats]
