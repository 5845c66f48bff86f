"""Which folders a command may write or replace, found out before it begins to work."""

import os
from contextlib import suppress
from pathlib import Path

from ..blame import advice
from ..errors import BuildError


def check_output(named: Path, mark: str, kind: str) -> Path:
    """Where `named` leads, symbolic links followed: they stay, what they lead to is replaced.

    Raises BuildError unless nothing is there, or an empty folder, or one that holds the file `mark`, as `kind` ("an
    engine") does; for the current folder, which would vanish under whoever is in it; and where nothing can be written.
    """
    output = Path(os.path.realpath(named))
    try:
        if _is_there(output):
            if not output.is_dir() or (any(output.iterdir()) and not (output / mark).exists()):
                raise BuildError(f"{named} exists and is not {kind}; name another output, or remove it first")
            _refuse_current(named, output)
        place = next(parent for parent in output.parents if parent.exists())
    except OSError as error:
        raise BuildError(f"{named}: {error.strerror}; {advice(error) or 'name another output'}"[:500]) from None
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise BuildError(f"{named}: {place} is not a folder that can be written; name another output")
    return output


def _is_there(path: Path) -> bool:
    """Whatever it is, a link to nowhere too. Raises OSError where that cannot be known, or a name cannot be."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _refuse_current(named: Path, output: Path) -> None:
    with suppress(OSError):  # one that was removed
        if Path(os.path.realpath(Path.cwd())).is_relative_to(output):
            raise BuildError(
                f"{named} is the current folder, or holds it, and would be replaced as a whole; run the command from "
                f"another folder, with {output} as its output"
            )
