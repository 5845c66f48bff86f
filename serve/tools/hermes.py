"""Nous Research's Hermes, Qwen and others: <tool_call>{"name": ..., "arguments": {...}}</tool_call>, text around it."""

from collections.abc import Sequence

from ..scanning import Malformed, Scan, nonblank, text_until
from .call_object import call_object
from .parser import Function, ToolParser, object_rules, repeated

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


class HermesParser(ToolParser):
    """What is marked as a call is one, whatever its name."""

    @classmethod
    def grammar(cls, functions: Sequence[Function], *, parallel: bool) -> str:
        """See ToolParser."""
        calls = repeated("marked", r'"\n"', parallel=parallel)
        marked = r'marked: "<tool_call>\n" call "\n</tool_call>"'
        return f"start: {calls}\n{marked}\n{object_rules(functions, 'arguments')}"

    def _read(self) -> Scan[None]:
        marker = yield from text_until((_OPEN,), self._out.content)
        while marker:
            if (yield from self._attempt(_OPEN, self._call())):
                marker = yield from text_until((_OPEN, _CLOSE), lambda _: None)
                if marker != _CLOSE:
                    continue
            marker = yield from text_until((_OPEN,), self._out.content)

    def _call(self) -> Scan[None]:
        if (yield from nonblank()) != "{":
            raise Malformed
        yield from call_object(self._out, lambda name: True)
