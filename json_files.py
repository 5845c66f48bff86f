"""JSON files that people edit and download, read with bounds on size, depth, numbers and text.

What comes back can be walked by recursion, printed, encoded as UTF-8, and compared with numbers of 64 bits.
"""

import json
import re
import stat
from codecs import BOM_UTF8
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .errors import cannot_read, shown
from .units import shown_size

MAX_BYTES = 128 << 20  # the largest tokenizer.json known has 34 MB
MAX_DEPTH = 64
MAX_VALUES = 10_000_000

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_object(
    path: Path, raises: Callable[[str], Exception], advice: str = "", *, max_bytes: int = MAX_BYTES
) -> dict[str, Any]:
    """The JSON object in the file `path`. Raises `raises(message)`, also where there is no such file.

    `advice`: what to do about a file that was read and is no such object ("download it again").
    """
    return parse_object(read_bytes(path, raises, max_bytes=max_bytes), path, raises, advice)


def read_bytes(path: Path, raises: Callable[[str], Exception], *, max_bytes: int = MAX_BYTES) -> bytes:
    """A whole regular file of at most `max_bytes`. Raises `raises(message)`; permissions are blamed by name."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise raises(f"{path}: not a regular file")
        if found.st_size > max_bytes:
            raise raises(f"{path}: {shown_size(found.st_size)} long; the limit is {shown_size(max_bytes)}")
        with path.open("rb") as file:
            return file.read(max_bytes)
    except FileNotFoundError:
        raise raises(f"{path}: no such file") from None
    except OSError as error:
        raise raises(cannot_read(path, error)) from error


def parse_object(data: bytes, path: Path, raises: Callable[[str], Exception], advice: str = "") -> dict[str, Any]:
    """`parse` for an object that was read from `path`, which a message names. Raises `raises(message)`."""
    ending = f"; {advice}" if advice else ""
    try:
        value = parse(data)
    except ValueError as error:
        raise raises(f"{path}: not valid JSON: {error}{ending}") from None
    if not isinstance(value, dict):
        raise raises(f"{path}: expected a JSON object, found {type(value).__name__}{ending}")
    return value


def parse(data: bytes, *, unique: bool = False) -> Any:
    """The value of a JSON text. Raises ValueError, with a short reason, for one that is damaged or past a bound.

    Integers that 64 bits cannot hold become floats; NaN and infinities are read, as Python writes them. `unique`
    refuses an object with a key twice, of which the last one counts otherwise.
    """
    values = sum(map(data.count, (b",", b"[", b"{")))
    if values > MAX_VALUES:
        raise ValueError(f"it holds about {values} values; the limit is {MAX_VALUES}")
    try:
        text = data.removeprefix(BOM_UTF8).decode()
        value = json.loads(text, parse_int=_number, object_pairs_hook=_unique if unique else None)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_DEPTH}, the limit") from None
    _check_depth(value)
    if _SURROGATE.search(data):
        _check_text(value)
    return value


def _number(text: str) -> int | float:
    number = int(text) if len(text) <= 20 else None
    return number if number is not None and -(2**63) <= number < 2**63 else float(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {shown(key)} appears twice")
        result[key] = value
    return result


def _check_depth(value: Any) -> None:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        inside = (item.values() if isinstance(item, dict) else item for item in level)
        level = [item for items in inside for item in items if isinstance(item, (dict, list))]
        if not level:
            return
    raise ValueError(f"nested deeper than {MAX_DEPTH}, the limit")


def _check_text(value: Any) -> None:
    """Half of a surrogate pair is no text: it can be neither printed nor written."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("it holds half of a surrogate pair, which is no text") from None
