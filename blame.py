"""What an error of the operating system means to a user: what could not be written or read, and what to do."""

import errno
import os
from pathlib import Path

_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ADVICE = {
    **dict.fromkeys(_SPACE, "free some space there, or choose a folder on another disk"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "choose a path that you may read and write"),
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP), "choose another path"),
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EBUSY: "it is in use, perhaps as the place where a disk is mounted; choose another path",
    errno.EIO: "the disk, or the network that leads to it, failed; choose a path on another one",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


def advice(error: OSError) -> str | None:
    """What to do about it; None for an error that is not the user's to mend."""
    return None if error.errno is None else _ADVICE.get(error.errno)


def could_not_write(written: str | Path, error: OSError) -> str:
    """Why `written` could not be made: it is full, or the file that the system names is to blame."""
    from .atomic import is_unfinished  # `advice` is all that a run needs, whose start is short

    named = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else None
    # A copy that finds no room names what it reads; what is being made has a name that is nobody's concern.
    culprit = f"{named}: " if named and error.errno not in _SPACE and not is_unfinished(Path(named)) else ""
    ending = f"; {found}" if (found := advice(error)) else ""
    return f"{written} could not be written: {culprit}{error.strerror or error}{ending}"
