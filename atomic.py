"""Files and folders that appear whole or not at all: write beside, then rename."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A temporary folder beside `target` that replaces it when the block ends well, and vanishes otherwise.

    An exception of any kind, Ctrl-C and a full disk included, leaves an existing `target` as it was.
    """
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    work = _beside(target)
    try:
        work.mkdir(0o755)
        yield work
        retired = work.with_suffix(".old")
        if target.exists():
            os.replace(target, retired)
        try:
            os.replace(work, target)
        except BaseException:
            if retired.exists():
                os.replace(retired, target)
            raise
        shutil.rmtree(retired, ignore_errors=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """A temporary path beside `target` that is renamed to it when the block ends well, and removed otherwise."""
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    work = _beside(target)
    try:
        work.touch(0o644, exist_ok=False)
        yield work
        os.replace(work, target)
    finally:
        work.unlink(missing_ok=True)


def _beside(target: Path) -> Path:
    """A new name: known before anything bears it, so that a signal at any moment leaves nothing behind."""
    return target.with_name(f".{target.name}.{secrets.token_hex(6)}.partial")
