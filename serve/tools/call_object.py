"""A call written as a JSON object: {"name": ..., "arguments": {...}}."""

import json
from collections.abc import Callable
from typing import Any

from ..deltas import Deltas
from ..scanning import Emit, Malformed, Scan, json_string, json_value, nonblank

_ARGUMENTS = ("arguments", "parameters")
_OTHERS = ("id", "type", "function")


def call_object(out: Deltas, known: Callable[[str], bool]) -> Scan[None]:
    """Read a call whose "{" was read. Its arguments are passed on as they come, once the name is there.

    Raises Malformed for another object, one that calls no function that is `known`.
    """
    name: str | None = None
    arguments: list[str] | None = None
    char = yield from nonblank()
    while char == '"':
        key = yield from _key()
        char = yield from nonblank()
        if key in _ARGUMENTS and arguments is None:
            arguments = []
            char = yield from _arguments(char, arguments.append if name is None else out.arguments)
        elif key == "name" and name is None:
            text: list[str] = []
            char = yield from json_value(char, text.append)
            name = _name(text, known)
            out.begin(name)
            for piece in arguments or ():
                out.arguments(piece)
        elif key in _OTHERS:
            char = yield from json_value(char, _ignore)
        else:
            raise Malformed
        if char != ",":
            break
        char = yield from nonblank()
    if char != "}" or name is None:
        raise Malformed
    if arguments is None:
        out.arguments("{}")


def _key() -> Scan[str]:
    """A key whose quote was read, and the colon after it."""
    text = ['"']
    yield from json_string(text.append)
    if (yield from nonblank()) != ":":
        raise Malformed
    return str(_decoded(text))


def _arguments(first: str, emit: Emit) -> Scan[str]:
    """Some models write them as a string that holds JSON, or null where there are none."""
    if first == "{":
        return (yield from json_value(first, emit))
    text: list[str] = []
    char = yield from json_value(first, text.append)
    value = _decoded(text)
    emit(value if isinstance(value, str) else "{}" if value is None else "".join(text))
    return char


def _name(text: list[str], known: Callable[[str], bool]) -> str:
    name = _decoded(text)
    if not isinstance(name, str) or not name or not known(name):
        raise Malformed
    return name


def _decoded(text: list[str]) -> Any:
    try:
        return json.loads("".join(text), strict=False)
    except (ValueError, RecursionError):
        raise Malformed from None


def _ignore(_: str) -> None:
    pass
