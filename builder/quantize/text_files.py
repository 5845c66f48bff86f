"""Texts of files on this machine."""

from collections.abc import Iterator
from pathlib import Path

from ... import json_files
from ...errors import BuildError, shown

_MOST_BYTES = 1 << 30  # of a file


def read_texts(path: Path) -> Iterator[str]:
    """A text file as a whole, or each line's text of a JSONL file: a string, or an object's "text"."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise BuildError(f"{path}: {path.stat().st_size} bytes; at most {_MOST_BYTES} can be calibrated with")
        if path.suffix not in (".jsonl", ".json"):
            yield path.read_text(encoding="utf-8")
            return
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _text_of(line, path, number)
    except OSError as error:
        raise BuildError(f"{path}: cannot be read: {error.strerror or error}; give a text or JSONL file") from error
    except UnicodeDecodeError as error:
        raise BuildError(
            f"{path}: not UTF-8 text: {error.reason} at byte {error.start}; give a text or JSONL file"
        ) from error


def _text_of(line: str, path: Path, number: int) -> str:
    try:
        value = json_files.parse(line.encode())
    except ValueError as error:
        raise BuildError(f"{path}, line {number}: not valid JSON: {error}") from None
    text = value.get("text") if isinstance(value, dict) else value
    if not isinstance(text, str):
        raise BuildError(f'{path}, line {number}: expected a string or an object with "text", found {shown(value)}')
    return text
