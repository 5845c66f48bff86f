"""Files and folders that appear whole or not at all, whatever ends the process that writes them.

What is being written lies in a hidden folder beside its target, `.NAME.HEX.partial`, which its writer locks (`flock`).
When it is whole and on the disk, one rename exchanges it with what was there. A lock ends with its process, however
that ends: a hidden folder that nobody locks was left behind, and the next writer of the same target removes it. Where a
filesystem has no locks (some network ones), such folders stay until somebody removes them.
"""

import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from . import signals
from .exchange import ASIDE, put

_PARTIAL = re.compile(r"\.(.+)\.[0-9a-f]{12}\.partial", re.DOTALL)
_LONGEST = 200  # bytes of a name that a partial's name still repeats; filesystems allow 255


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A temporary folder that replaces `target` when the block ends well, and vanishes otherwise.

    An exception of any kind, Ctrl-C, SIGKILL and a full disk included, leaves an existing `target` as it was. Where it
    is a symbolic link, what the link names is replaced. Of several writers at once, one leaves its whole result.
    """
    with _appearing(target) as work:
        work.mkdir()
        yield work


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """A temporary file, empty at first, that replaces `target` as `new_folder` does."""
    with _appearing(target) as work:
        work.touch()
        yield work


@contextmanager
def temporary_folder(parent: Path | None = None, name: str = "enginesmith") -> Iterator[Path]:
    """A private folder that vanishes with the block, by default where the system keeps temporary files.

    If this process dies before, it vanishes when another calls this with the same `parent` and `name`.
    """
    parent = parent or Path(tempfile.gettempdir())
    clear_abandoned(parent, name)
    # Its name is known before it is made, so that a signal at any moment leaves nothing behind.
    folder = parent / f".{_short(name)}.{os.urandom(6).hex()}.partial"
    lock = None
    try:
        lock = _make_locked(folder)
        yield folder
    finally:
        with signals.held():
            _remove(folder)
            if lock is not None:
                os.close(lock)


def clear_abandoned(parent: Path, name: str | None = None) -> None:
    """Remove what dead processes left beside the target `name` in `parent`; without a name, beside all targets."""
    wanted = None if name is None else _short(name)
    with suppress(OSError):
        for entry in os.listdir(parent):
            found = _PARTIAL.fullmatch(entry)
            if found and wanted in (None, found[1]):
                _clear_if_abandoned(parent / entry)


def discard(path: Path) -> None:
    """Remove a folder as one: if this process dies meanwhile, `path` is there whole or not. An error leaves it."""
    with suppress(OSError), signals.held(), temporary_folder(path.parent, path.name) as folder:
        os.rename(path, folder / path.name)


def is_unfinished(path: Path) -> bool:
    """Whether `path` lies in a temporary folder of this module."""
    return any(_PARTIAL.fullmatch(part) for part in path.parts)


@contextmanager
def _appearing(target: Path) -> Iterator[Path]:
    target = Path(os.path.realpath(target))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(target.parent, target.name) as folder:
        work = folder / target.name
        yield work
        _write_through(work)
        with signals.held():
            put(work, target)
            _sync(target.parent)


def _write_through(path: Path) -> None:
    """Have all of it on the disk, before a name says that it is whole."""
    if path.is_dir():
        for folder, _, files in os.walk(path):
            for file in (Path(folder, name) for name in files):
                if not file.is_symlink():
                    _sync(file)
            _sync(Path(folder))
    else:
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.fsync(descriptor)
    except OSError:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):  # some filesystems write folders through by themselves
            raise
    finally:
        os.close(descriptor)


def _short(name: str) -> str:
    return name if len(os.fsencode(name)) <= _LONGEST else sha256(os.fsencode(name)).hexdigest()[:32]


def _make_locked(folder: Path) -> int:
    """Make it and lock it: again where somebody took it for abandoned in between."""
    while True:
        folder.mkdir(0o700)
        with suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            with suppress(OSError):  # a filesystem without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_at(lock, folder):
                return lock
            os.close(lock)


def _clear_if_abandoned(path: Path) -> None:
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # gone, or another user's
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(lock, path):
            with signals.held():
                _put_back(path)
                _remove(path)
    except OSError:  # its owner lives, or there are no locks
        pass
    finally:
        os.close(lock)


def _is_at(descriptor: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    return False


def _put_back(partial: Path) -> None:
    """What a dead process moved out of the way, and had not yet replaced."""
    aside = partial / ASIDE
    for entry in aside.iterdir() if aside.is_dir() else ():
        target = partial.parent / entry.name
        if not os.path.lexists(target):
            os.rename(entry, target)


def _remove(path: Path) -> None:
    """Remove a file or folder, again while a process that is still dying writes to it; it fails without it."""
    for _ in range(100):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        if not os.path.lexists(path):
            return
        time.sleep(0.02)
