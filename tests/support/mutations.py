"""Mutation tests: files and arguments with seeded faults, and the outcomes that are allowed: success, or our own error.

A test takes a few dozen mutations; ENGINESMITH_MUTATIONS sets how many, ENGINESMITH_SEED where they begin.
"""

import json
import math
import os
import random
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

from enginesmith.errors import EnginesmithError, shown

COUNT = int(os.environ.get("ENGINESMITH_MUTATIONS", "60"))
SEED = int(os.environ.get("ENGINESMITH_SEED", "0"))
SECONDS, BYTES = 10, 1 << 30
"""What one attempt may take."""


class TooLongError(BaseException):
    """Past SECONDS. Not an Exception, so that nobody takes it for one of theirs."""


def attempt(call: Callable[[], object], what: object) -> bool:
    """Whether a call succeeded; False for an error of ours. Anything else, a hang or a GB of memory fails the test.

    `what`: the mutation, to be shown then.
    """
    try:
        with _bounded():
            call()
    except EnginesmithError:
        return False
    except BaseException as error:
        error.add_note(f"mutation: {_told(what)}")
        raise
    return True


@contextmanager
def _bounded() -> Iterator[None]:
    def too_long(number: int, frame: FrameType | None) -> None:
        raise TooLongError(f"more than {SECONDS} s")

    handler = signal.signal(signal.SIGALRM, too_long)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        held = int(file.read().split()[0]) * resource.getpagesize()
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (held + BYTES, limits[1]))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGALRM, handler)


def generators(kind: str) -> Iterator[random.Random]:
    """COUNT generators, each to make one mutation of a kind of input."""
    for number in range(SEED, SEED + COUNT):
        yield random.Random(f"{kind} {number}")


def odd_value(rng: random.Random, *, json_only: bool = False) -> Any:
    """A value where another was expected; `json_only`: one that JSON can hold."""
    made = rng.choice(_JSON_VALUES if json_only or rng.random() < 0.6 else _PYTHON_VALUES)
    return made() if callable(made) else made


def mutated_value(rng: random.Random, value: Any) -> Any:
    """A JSON value with some of its parts replaced, dropped, doubled, moved or nested; a copy."""
    value = _copied(value)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        holders = list(_holders(value))
        if not holders:
            return odd_value(rng, json_only=True)
        holder = rng.choice(holders)
        key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        match rng.randrange(7):
            case 0:
                del holder[key]
            case 1 | 2 | 3:
                holder[key] = odd_value(rng, json_only=True)
            case 4:
                holder[key] = _near(rng, holder[key])
            case 5:
                other = rng.choice(holders)
                holder[key] = _copied(rng.choice(list(other.values()) if isinstance(other, dict) else other))
            case _ if isinstance(holder, dict):
                holder[rng.choice(("", "x", "\x1b[31m", "__class__", str(key) * 3))] = odd_value(rng, json_only=True)
            case _:
                holder.append(_copied(holder[key]))
    return value


def mutated_json(rng: random.Random, text: bytes) -> bytes:
    """A JSON file with faults in its values, or in its text."""
    if rng.random() < 0.25:
        return mutated_bytes(rng, text)
    return json.dumps(mutated_value(rng, json.loads(text)), ensure_ascii=rng.random() < 0.9).encode(
        "utf-8", "surrogatepass"
    )


def mutated_bytes(rng: random.Random, data: bytes) -> bytes:
    """A file with some of its bytes flipped, cut, doubled, overwritten or moved."""
    new = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(new) + 1)
        length = min(rng.choice((1, 2, 4, 8, 64, 1024)), len(new) - at)
        match rng.randrange(7):
            case 0 if at < len(new):
                new[at] ^= 1 << rng.randrange(8)
            case 1:
                new[at : at + length] = rng.randbytes(length)
            case 2:
                del new[at : at + length]
            case 3:
                new[at:at] = new[at : at + length]
            case 4:
                number = rng.choice((0, 1, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1))
                new[at : at + 8] = number.to_bytes(8, "little")[: len(new[at : at + 8])]
            case 5:
                new[at:at] = rng.choice(_SNIPPETS)
            case _:
                del new[at:]
    return bytes(new)


def mutated_text(rng: random.Random, text: str) -> str:
    """A text with some of its lines doubled, dropped, moved or cut, or with snippets that mean something to parsers."""
    if rng.random() < 0.3:
        return mutated_bytes(rng, text.encode("utf-8", "surrogatepass")).decode("utf-8", "replace")
    lines = text.splitlines(keepends=True)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(lines)) if lines else 0
        match rng.randrange(5):
            case 0 if lines:
                lines.insert(rng.randrange(len(lines)), lines[at])
            case 1 if lines:
                del lines[at]
            case 2 if lines:
                lines[at] = "  " * rng.randrange(4) + lines[at].lstrip()
            case 3 if lines and ":" in lines[at]:
                lines[at] = f"{lines[at].partition(':')[0]}: {odd_value(rng, json_only=True)!r:.200}\n"
            case _:
                lines.insert(at, rng.choice(_SNIPPETS).decode("utf-8", "replace"))
    return "".join(lines)


def _told(what: object) -> str:
    try:
        return repr(what)[:4000]
    except (ValueError, RecursionError):
        return shown(what)


def _copied(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _holders(value: Any, depth: int = 30) -> Iterator[Any]:
    """The lists and objects in a value that hold something."""
    if isinstance(value, dict | list) and value and depth:
        yield value
        for item in value.values() if isinstance(value, dict) else value[:50]:
            yield from _holders(item, depth - 1)


def _near(rng: random.Random, value: Any) -> Any:
    """Another value of the same type, mostly."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice(
            (value + 1, value - 1, -value, value * 2, value // 2, value << 32, value * 10**20, float(value))
        )
    if isinstance(value, float):
        return rng.choice((value * 2, -value, value + 1e-9, value * 1e30, int(value) if math.isfinite(value) else 0))
    if isinstance(value, str):
        return rng.choice((value[:-1], value + "\ud800", value + "\x00", value * 3, value.upper(), f"../{value}", ""))
    return rng.choice((None, [value], {"x": value}))


def _deep(kind: type, levels: int) -> Any:
    value: Any = kind()
    for _ in range(levels):
        value = [value] if kind is list else {"a": value}
    return value


def _cyclic() -> list[Any]:
    value: list[Any] = [1]
    value.append(value)
    return value


_NUMBERS = [
    0,
    1,
    -1,
    2,
    3,
    255,
    2**31 - 1,
    2**31,
    2**32,
    2**53,
    2**63,
    2**64,
    10**29,
    -(2**63),
    0.5,
    -0.0,
    1e-45,
    1e308,
]
_TEXTS = [
    "",
    "a",
    " ",
    "\x00",
    "\x1b[31m",
    "\ud800",
    "日本🙂",
    "a" * 5000,
    "../..",
    "{{ 1 }}",
    "{% for",
    "nan",
    "-1",
    "null",
]
_JSON_VALUES = [
    *(None, True, False, math.nan, math.inf, -math.inf, *_NUMBERS, *_TEXTS),
    *(
        list,
        dict,
        lambda: [[]],
        lambda: [0] * 1000,
        lambda: {"a": 1},
        lambda: _deep(list, 70),
        lambda: _deep(dict, 900),
    ),
]
_PYTHON_VALUES = [
    *(b"", b"a", (), (1, "a"), {1, 2}, range(3), 1j, lambda: len, Ellipsis, np.int64(3), np.float32(0.5), 10**5000),
    *(
        object,
        _cyclic,
        lambda: iter([1]),
        lambda: (x for x in "ab"),
        lambda: _deep(list, 2000),
        lambda: {1: 2, None: 3},
    ),
    *(lambda: np.zeros(3), lambda: np.array([[1]]), lambda: bytearray(b"a"), lambda: memoryview(b"a")),
]
_SNIPPETS = [
    *(
        b"[" * 3000,
        b'{"a":' * 900,
        b"\x00",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\\ud800",
        b'"',
        b"{",
        b"}",
        b"1e999",
        b"9" * 5000,
    ),
    *(b"- &a [*a]\n", b"a: *b\n", b"<<: *x\n", b"!!python/object/apply:os.system [x]\n", b"? [a]\n", b"%YAML 9\n---\n"),
    *(b"\t", b"\n\n", b"{% for i in range(10**9) %}", b"{{ 'a' * 10**9 }}", b"{{ x.__class__ }}", b"{% endfor %}"),
]
