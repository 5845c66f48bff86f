"""Who is to blame for an error of the operating system, and what to do."""

import errno
import os

import pytest

from enginesmith.blame import advice, could_not_write


def _error(number: int, name: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), name)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            _error(errno.ENOSPC, "/source"),
            "out could not be written: No space left on device; free some space",
        ),
        (_error(errno.EACCES, "/source"), "out could not be written: /source: Permission denied; choose a path that"),
        (
            _error(errno.EACCES, "/a/.out.0123456789ab.partial/out"),
            "out could not be written: Permission denied; cho",
        ),
        (_error(errno.ENAMETOOLONG), "out could not be written: File name too long; choose a shorter name"),
        (_error(errno.ENOTDIR, "/x/out"), "out could not be written: /x/out: Not a directory; choose another path"),
        (OSError("odd"), "out could not be written: odd"),
    ],
)
def test_what_is_said(error: OSError, said: str) -> None:
    assert could_not_write("out", error).startswith(said)


def test_space_is_asked_for_only_where_it_lacks() -> None:
    wanting = {number for number in errno.errorcode if "space" in (advice(_error(number)) or "")}
    assert wanting == {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
