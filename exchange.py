"""One rename that puts a file or folder in the place of another, so that at every moment one of both is there whole."""

import ctypes
import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

ASIDE = ".aside"  # beside what is being put: holds what it replaces, where that cannot be exchanged

_SYSCALL = 316  # renameat2 on x86-64; not every C library has a function for it
_HERE = -100  # AT_FDCWD
_NOREPLACE, _EXCHANGE = 1, 2
_LACKING = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM}  # the filesystem, the kernel, or a sandbox


def put(work: Path, target: Path) -> None:
    """Give `work` the name `target`; what was there, if anything, lies at `work` or beside it in ASIDE afterwards.

    Both are on one filesystem. One that cannot exchange folders (some network and FUSE filesystems) moves the old one
    away first: between two renames nothing is at `target`, and a process that is killed just there leaves the old
    one in ASIDE, from where the next writer of `target` puts it back.
    """
    if not work.is_dir():
        os.replace(work, target)
        return
    try:
        _exchange(work, target)
    except OSError as error:
        if error.errno not in _LACKING:
            raise
        _put_in_two_steps(work, target)


def _exchange(work: Path, target: Path) -> None:
    """Again where another writer's folder comes or goes in between."""
    while True:
        with suppress(FileExistsError):
            _rename(work, target, _NOREPLACE)
            return
        with suppress(FileNotFoundError):
            _rename(work, target, _EXCHANGE)
            return


def _rename(source: Path, target: Path, flags: int) -> None:
    call = ctypes.CDLL(None, use_errno=True).syscall
    names = [os.fsencode(path) for path in (source, target)]
    if call(_SYSCALL, _HERE, names[0], _HERE, names[1], flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(target))


def _put_in_two_steps(work: Path, target: Path) -> None:
    aside = work.parent / ASIDE / target.name
    aside.parent.mkdir()
    while True:
        with suppress(FileNotFoundError):
            os.rename(target, aside)
        try:
            os.rename(work, target)
            return
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):  # another writer was faster
                shutil.rmtree(aside, ignore_errors=True)
                continue
            if aside.exists():
                os.rename(aside, target)
            raise
