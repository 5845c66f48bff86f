"""Folders that several processes of a test run share: made by the first to ask, while the others wait."""

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path


def once(folder: Path, make: Callable[[Path], object]) -> Path:
    """`folder`, filled by `make` unless it was before; what a `make` that failed left is removed first."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    done = folder.with_name(f".{folder.name}.done")
    with folder.with_name(f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder
