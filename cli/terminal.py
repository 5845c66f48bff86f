"""Text on a terminal: what files, models and paths hold is shown there, and steers nothing.

Control characters but newline and tab appear as escapes (`\\x1b`); so does what the terminal's encoding lacks.
"""

import io
import json
import logging
import re
import sys
from contextlib import nullcontext, suppress
from typing import Any

import click

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_CONTROL_IN_JSON = re.compile(r"[\x7f-\x9f]")  # it escapes the lower ones by itself


def prepare() -> None:
    """Let no character that is written, and no warning, end the program or reach the terminal raw."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None where the shell closed it
            stream.reconfigure(errors="backslashreplace")
    logger = logging.getLogger(__name__.partition(".")[0])
    if not logger.handlers:
        logger.addHandler(_Warnings())


def printable(text: object) -> str:
    """Text whose control characters are shown."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", str(text))


def say(message: object, *, err: bool = False, **style: Any) -> None:
    """A line of our own, with click's styles; what it quotes is made printable."""
    _write(click.style(printable(message), **style), err=err)


def say_marked(mark: str, message: object, *, err: bool = False) -> None:
    """A line that begins with a mark of our own, which may be styled."""
    _write(f"{mark} {printable(message)}", err=err)


def write_model_text(text: str, end: str = "\n") -> None:
    """What a model or a user wrote, on stdout: printable on a terminal, as it is in a file or pipe."""
    if sys.stdout is not None:
        print(printable(text) if sys.stdout.isatty() else text, end=end, flush=True)


def write_json(data: object, *, indent: int | None = None) -> None:
    """JSON on stdout, readable where its encoding is a Unicode one, valid in every other."""
    unicode = (getattr(sys.stdout, "encoding", None) or "").lower().startswith("utf")
    text = json.dumps(data, ensure_ascii=not unicode, indent=indent)
    _write(_CONTROL_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def _write(line: str, *, err: bool = False) -> None:
    """Given no file, click would take another encoding than an ASCII terminal's own. What cannot be written on stderr
    ends nothing: there is nowhere to say so.
    """
    stream = sys.stderr if err else sys.stdout
    if stream is not None:
        with suppress(OSError) if err else nullcontext():
            click.echo(line, file=stream)


class _Warnings(logging.Handler):
    """Warnings as lines of our own; a fault of ours with its traceback, for whoever is to mend it."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"{record.levelname.lower()}: {record.getMessage()}", err=True)
        if record.exc_info:
            say(logging.Formatter().formatException(record.exc_info), err=True)
