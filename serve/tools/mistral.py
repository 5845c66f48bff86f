"""Mistral: [TOOL_CALLS] and a list of {"name": ..., "arguments": {...}}; newer: [TOOL_CALLS]name[ARGS]{...} each."""

import secrets
import string
from collections.abc import Callable, Sequence

from ..scanning import Malformed, Scan, nonblank, rest_of_brackets, text_until
from .call_object import call_object
from .parser import Function, ToolParser, object_rules, repeated

_TAG, _ARGS, _ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_ID_LETTERS = string.ascii_letters + string.digits


class MistralParser(ToolParser):
    """Without the tag a list is one of calls where it names functions of the request."""

    special_tokens = True

    @staticmethod
    def new_id() -> str:
        """Mistral's templates demand nine letters or digits."""
        return "".join(secrets.choice(_ID_LETTERS) for _ in range(9))

    @classmethod
    def grammar(cls, functions: Sequence[Function], *, parallel: bool) -> str:
        """See ToolParser."""
        calls = repeated("call", '", "', parallel=parallel)
        return f'start: "[" {calls} "]"\n{object_rules(functions, "arguments")}'

    def _read(self) -> Scan[None]:
        yield from self._attempt("", self._begin())
        while (yield from text_until((_TAG,), self._out.content)):
            yield from self._attempt(_TAG, self._tagged())

    def _begin(self) -> Scan[None]:
        """The beginning of the answer: a list, or the tag, which begins with a bracket, too."""
        if (yield from nonblank()) != "[":
            raise Malformed
        char = yield from nonblank()
        if char == "{":
            yield from self._objects(self._known)
            return
        for expected in _TAG[1:-1]:
            if char != expected:
                raise Malformed
            char = yield
        if char != _TAG[-1]:
            raise Malformed
        yield from self._tagged()

    def _tagged(self) -> Scan[None]:
        char = yield from nonblank()
        if char == "{":
            yield from call_object(self._out, lambda name: True)
        elif char != "[":
            yield from self._named(char)
        elif (yield from nonblank()) == "{":
            yield from self._objects(lambda name: True)
        else:
            raise Malformed

    def _objects(self, known: Callable[[str], bool]) -> Scan[None]:
        """The rest of a list whose first "{" was read."""
        char = "{"
        while char == "{":
            yield from call_object(self._out, known)
            char = yield from nonblank()
            if char == ",":
                char = yield from nonblank()
        if char != "]":
            raise Malformed

    def _named(self, first: str) -> Scan[None]:
        """name[ARGS]{...}, name[CALL_ID]...[ARGS]{...} or name{...}."""
        name = [first]
        marker = yield from text_until((_ARGS, _ID, "{"), name.append)
        if marker == _ID:
            marker = yield from text_until((_ARGS, "{"), lambda _: None)
        char = marker if marker == "{" else (yield from nonblank())
        called = "".join(name).strip()
        if char != "{" or not called:
            raise Malformed
        self._out.begin(called)
        self._out.arguments("{")
        yield from rest_of_brackets("{", self._out.arguments)
