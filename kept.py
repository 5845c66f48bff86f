"""Things in the cache: each a folder, with the digests of its files beside them.

What is damaged, or cut short, is as good as absent: it is made again.
"""

from collections.abc import Callable
from pathlib import Path

from . import integrity
from .atomic import clear_abandoned, new_folder
from .blame import could_not_write
from .cache import VARIABLE, cache_dir
from .errors import CacheError
from .json_files import read_bytes

_DIGESTS = ".sha256"  # as `sha256sum -c` reads it
_LARGE = 4 << 20  # a larger file is read whole once, then again when it was touched


def find(kind: str, name: str) -> Path | None:
    """The folder that was kept as `name`, if it is whole; what dead processes left beside it is removed.

    Raises CacheError where `cache_dir` does.
    """
    folder = cache_dir(kind) / name
    clear_abandoned(folder.parent)
    try:
        return folder if _is_whole(folder) else None
    except (OSError, ValueError):
        return None


def keep(kind: str, name: str, fill: Callable[[Path], object]) -> Path:
    """The folder `name`, made anew: `fill` writes what it holds, all readable by its user alone.

    Raises what `fill` raises, and CacheError where it cannot be written.
    """
    target = cache_dir(kind) / name
    try:
        with new_folder(target) as folder:
            fill(folder)
            _seal(folder)
        return target
    except OSError as error:
        reason = could_not_write(f"the cache {target.parent}", error)
        raise CacheError(f"{reason}. The variable {VARIABLE} names another place for it.") from error


def _seal(folder: Path) -> None:
    lines = []
    for path in sorted(folder.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
        if path.is_file():
            digest = integrity.sha256(path)
            if path.stat().st_size > _LARGE:
                integrity.remember(path, digest)
            lines.append(f"{digest}  {path.relative_to(folder).as_posix()}\n")
    (folder / _DIGESTS).write_text("".join(lines), encoding="utf-8")
    (folder / _DIGESTS).chmod(0o600)
    folder.chmod(0o700)


def _is_whole(folder: Path) -> bool:
    lines = read_bytes(folder / _DIGESTS, ValueError).decode().splitlines()
    digests = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {_DIGESTS}
    return files == digests.keys() and all(_has_digest(folder / name, digest) for name, digest in digests.items())


def _has_digest(path: Path, digest: str) -> bool:
    large = path.stat().st_size > _LARGE
    if large and integrity.is_known(path, digest):
        return True
    same = integrity.sha256(path) == digest
    if same and large:
        integrity.remember(path, digest)
    return same
