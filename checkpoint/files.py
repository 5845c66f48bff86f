"""Looking at a checkpoint's files: what cannot be read is said to be so, rather than missing or damaged."""

from pathlib import Path

from ..errors import CheckpointError, cannot_read
from .lfs_pointer import PREFIX_BYTES, is_lfs_pointer, lfs_pointer_message


def exists(path: Path) -> bool:
    """Whether there is something at `path`, links followed. Raises CheckpointError where that cannot be told."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL in the name
        return False
    except OSError as error:
        raise CheckpointError(cannot_read(path, error)) from error
    return True


def expanded(path: str | Path) -> Path:
    """`path` with the home folder for "~", as it is where there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def listing(folder: Path) -> list[Path]:
    """All that lies in a folder, sorted. Raises CheckpointError where it cannot be read."""
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise CheckpointError(cannot_read(folder, error)) from error


def check_readable(path: Path) -> None:
    """Raise CheckpointError for a file that cannot be read, and for a Git LFS pointer in its place."""
    try:
        with path.open("rb") as file:
            refuse_pointer(path, file.read(PREFIX_BYTES))
    except OSError as error:
        raise CheckpointError(cannot_read(path, error)) from error


def refuse_pointer(path: Path, first_bytes: bytes) -> None:
    """Raise CheckpointError where a file that begins so is a Git LFS pointer."""
    if is_lfs_pointer(first_bytes):
        raise CheckpointError(lfs_pointer_message(path))
