"""What all parsers of calls have in common."""

import contextlib
import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

from ...runtime.structured_output.json_options import JSON_OPTIONS
from ..deltas import Delta, Deltas
from ..scanning import Malformed, Scan, T

Function = dict[str, Any]
"""A tool's `function`: its name, and the JSON Schema of its parameters."""


class ToolParser(ABC):
    """Finds calls in an answer, however it is cut into pieces. One for each answer."""

    special_tokens: ClassVar[bool] = False
    """Whether the form has special tokens, which the text must then hold."""

    def __init__(self, names: Collection[str]) -> None:
        """`names`: the functions that can be called."""
        self._names = names
        self._out = Deltas(self.new_id)
        self._attempted: list[str] | None = None
        self._scan = self._read()
        next(self._scan)

    @property
    def calls(self) -> int:
        """Calls so far."""
        return self._out.calls

    def push(self, text: str) -> list[Delta]:
        """What a piece adds."""
        for char in text:
            if self._attempted is not None:
                self._attempted.append(char)
            self._scan.send(char)
        return self._out.take()

    def finish(self) -> list[Delta]:
        """What is added when no more text comes."""
        with contextlib.suppress(StopIteration):
            while True:  # as often as something waits for more
                self._scan.send("")
        self._out.end()
        return self._out.take()

    @staticmethod
    def new_id() -> str:
        """An id for a call."""
        return f"call_{secrets.token_hex(12)}"

    @classmethod
    @abstractmethod
    def grammar(cls, functions: Sequence[Function], *, parallel: bool) -> str:
        """A grammar, in llguidance's Lark, of answers that are calls: one, or with `parallel` one or more."""

    @abstractmethod
    def _read(self) -> Scan[None]:
        """Read a whole answer into `_out`."""

    def _attempt(self, before: str, scan: Scan[T]) -> Scan[bool]:
        """Whether `scan` read a call, or began one; if not, all that it read, and `before`, is content."""
        calls = self._out.calls
        self._attempted = [before]
        try:
            yield from scan
        except Malformed:
            if self._out.calls == calls:
                self._out.content("".join(self._attempted))
        self._attempted = None
        return self._out.calls > calls

    def _known(self, name: str) -> bool:
        return name in self._names


def repeated(call: str, between: str, *, parallel: bool) -> str:
    """One `call` of a grammar, or more."""
    return f"{call} ({between} {call})*" if parallel else call


def object_rules(functions: Sequence[Function], arguments: str) -> str:
    """Rules of a grammar: `call` is a JSON object that calls one of the functions, its key `arguments`."""
    rules = ["call: " + " | ".join(f"call_{at}" for at in range(len(functions)))]
    for at, function in enumerate(functions):
        begin = f'{{"name": {json.dumps(function["name"])}, "{arguments}": '
        rules.append(f'call_{at}: {json.dumps(begin)} arguments_{at} "}}"')
        rules.append(f"arguments_{at}: {json_rule(parameters(function))}")
    return "\n".join(rules)


def parameters(function: Function) -> dict[str, Any]:
    """A function's schema; without one it takes nothing."""
    return function.get("parameters") or {"type": "object", "properties": {}, "additionalProperties": False}


def json_rule(schema: dict[str, Any]) -> str:
    """JSON of a schema, as part of a grammar."""
    return "%json " + json.dumps(schema | {"x-guidance": JSON_OPTIONS})
