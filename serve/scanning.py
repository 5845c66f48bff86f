"""Reading a text that comes in pieces: coroutines that are sent one character after another, and "" at the end."""

from collections.abc import Callable, Collection, Generator
from typing import TypeVar

T = TypeVar("T")
Scan = Generator[None, str, T]
Emit = Callable[[str], None]

_CLOSING = {"{": "}", "[": "]"}


class Malformed(Exception):
    """What was read is not what was looked for."""


def nonblank() -> Scan[str]:
    """The next character that is no blank."""
    while (char := (yield)).isspace():
        pass
    return char


def behind_marker(markers: Collection[str]) -> Scan[str]:
    """The next character that is no blank, behind a marker if there is one."""
    held = yield from nonblank()
    while held and held not in markers and any(marker.startswith(held) for marker in markers):
        held += yield
    if held in markers:
        return (yield from nonblank())
    if len(held) > 1:
        raise Malformed
    return held


def text_until(markers: Collection[str], emit: Emit, first: str = "") -> Scan[str]:
    """Pass text on, which may begin with `first`, up to one of some markers; returns that, or "" at the end.

    What may be the beginning of a marker is held back until that is decided.
    """
    held, char = "", first or (yield)
    while char:
        held += char
        while held and not any(marker.startswith(held) for marker in markers):
            emit(held[0])
            held = held[1:]
        if held in markers:
            return held
        char = yield
    emit(held)
    return ""


def json_string(emit: Emit) -> Scan[None]:
    """Pass on the rest of a JSON string whose opening quote was read."""
    escaped = False
    while char := (yield):
        emit(char)
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == '"':
            return
    raise Malformed


def json_value(first: str, emit: Emit) -> Scan[str]:
    """Pass on a JSON value that begins with `first`, however deep; returns the character after it that is no blank.

    Brackets must match; what else JSON asks for is not looked at.
    """
    if first == '"':
        emit(first)
        yield from json_string(emit)
    elif first in ("{", "["):
        emit(first)
        yield from rest_of_brackets(first, emit)
    elif first and (first.isalnum() or first == "-"):
        while first and not first.isspace() and first not in ",}]":
            emit(first)
            first = yield
        return (yield from nonblank()) if first.isspace() else first
    else:
        raise Malformed
    return (yield from nonblank())


def rest_of_brackets(opening: str, emit: Emit) -> Scan[None]:
    """Pass on the rest of a JSON object or array whose `opening` was read; nothing after it is read."""
    open_brackets = [_CLOSING[opening]]
    while open_brackets:
        char = yield
        if not char or (char in "}]" and char != open_brackets.pop()):
            raise Malformed
        emit(char)
        if char == '"':
            yield from json_string(emit)
        elif char in "{[":
            open_brackets.append(_CLOSING[char])
