"""Llama 3: the answer is {"name": ..., "parameters": {...}}, or several, ";" between; maybe <|python_tag|> before."""

from collections.abc import Sequence

from ..scanning import Malformed, Scan, behind_marker, nonblank, text_until
from .call_object import call_object
from .parser import Function, ToolParser, object_rules, repeated

_TAG = "<|python_tag|>"


class Llama3Parser(ToolParser):
    """An object is a call where it names a function of the request: the model may answer in JSON, too."""

    special_tokens = True

    @classmethod
    def grammar(cls, functions: Sequence[Function], *, parallel: bool) -> str:
        """See ToolParser."""
        calls = repeated("call", '"; "', parallel=parallel)
        return f"start: {calls}\n{object_rules(functions, 'parameters')}"

    def _read(self) -> Scan[None]:
        called = yield from self._attempt("", self._call())
        while True:
            while called:
                called = yield from self._attempt("", self._next_call())
            if not (yield from text_until((_TAG,), self._out.content)):
                return
            called = yield from self._attempt(_TAG, self._call())

    def _call(self) -> Scan[None]:
        if (yield from behind_marker((_TAG,))) != "{":
            raise Malformed
        yield from call_object(self._out, self._known)

    def _next_call(self) -> Scan[None]:
        char = yield from nonblank()
        if char == ";":
            char = yield from nonblank()
        if char != "{":
            raise Malformed
        yield from call_object(self._out, self._known)
