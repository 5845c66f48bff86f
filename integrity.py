"""Digests of files, and the memory of those already found right.

Hashing costs about a second a gigabyte, so a file found right is remembered in the user's cache by its expected digest
and its identity (device, inode, size, modification and change time). Any write to the file changes its identity and
makes it be hashed again. The memory is an empty file whose name is the hash of both; losing it costs one hashing.
"""

import contextlib
import hashlib
from pathlib import Path

from .cache import cache_dir
from .errors import CacheError


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_known(path: Path, digest: str) -> bool:
    """Whether this very file was once found to have `digest`."""
    try:
        return _stamp(path, digest).exists()
    except (OSError, CacheError):
        return False


def remember(path: Path, digest: str) -> None:
    """Record that `path` has `digest`; a cache that cannot be used is no error."""
    with contextlib.suppress(OSError, CacheError):
        _stamp(path, digest).touch(0o600)


def _stamp(path: Path, digest: str) -> Path:
    stat = path.stat()
    identity = f"{digest} {stat.st_dev} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"
    return cache_dir("verified") / hashlib.sha256(identity.encode()).hexdigest()
