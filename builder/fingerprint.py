"""Digests of what results were made from: inputs, files, and our own source."""

import hashlib
import json
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_CODE = (".py", ".h", ".cpp")


def digest(inputs: object) -> str:
    """A digest of JSON values."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def code_digest(*folders: str) -> str:
    """A digest of our own source in those folders: a changed builder makes a new engine."""
    state = hashlib.sha256()
    for path in sorted(path for folder in folders for path in (_PACKAGE / folder).rglob("*") if path.suffix in _CODE):
        state.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return state.hexdigest()


def stamp(path: Path) -> list[list[object]]:
    """Name, size and time of a file, or of a folder's files: what changes when they do."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    stats = [(file.name, file.stat()) for file in files]
    return [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats]
