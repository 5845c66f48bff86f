"""Where enginesmith keeps what it can make again: imports, traces, compiled objects. See `kept.py` for how."""

import os
from pathlib import Path

from .errors import CacheError

VARIABLE = "ENGINESMITH_CACHE"
_OTHERS_WRITE = 0o022


def cache_root() -> Path:
    """`ENGINESMITH_CACHE`, else `XDG_CACHE_HOME/enginesmith`, else `~/.cache/enginesmith`; it need not exist."""
    root = os.environ.get(VARIABLE)
    return Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "enginesmith"


def cache_dir(kind: str) -> Path:
    """The cache folder for `kind` ("sources", "traces", "objects"), made if absent: private, whatever the umask.

    Raises CacheError where it cannot be made, and for one in which another user can put things: native code is loaded
    from it.
    """
    root = cache_root()
    for folder in (root, root / kind):
        try:
            _make_private(folder)
            found = folder.stat()
        except (OSError, RuntimeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise CacheError(f"the cache {folder} cannot be made: {reason}; {_another()}") from None
        if found.st_uid != os.geteuid():
            raise CacheError(f"the cache {folder} belongs to another user (uid {found.st_uid}); {_another()}")
        if found.st_mode & _OTHERS_WRITE:
            raise CacheError(
                f"the cache {folder} can be written by others (mode {found.st_mode & 0o777:o}), who could put code "
                f"there; remove it, or take the permission away (chmod go-w) if you trust its contents, or {_another()}"
            )
    return root / kind


def _another() -> str:
    return f"name a folder of your own in the variable {VARIABLE}"


def _make_private(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
