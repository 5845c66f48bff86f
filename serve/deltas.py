"""What a piece of an answer adds to its message, as OpenAI's API tells it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class ToolCallDelta:
    """A piece of a call: the first has an id and a name, those that follow have arguments, a piece of JSON each."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""

    def to_json(self) -> dict[str, Any]:
        """An entry of a chunk's `delta.tool_calls`."""
        if self.id is None:
            return {"index": self.index, "function": {"arguments": self.arguments}}
        function = {"name": self.name, "arguments": self.arguments}
        return {"index": self.index, "id": self.id, "type": "function", "function": function}


@dataclass(slots=True)
class Delta:
    """One of the three."""

    content: str = ""
    reasoning_content: str = ""
    tool_call: ToolCallDelta | None = None

    def to_json(self) -> dict[str, Any]:
        """A chunk's `delta`."""
        if self.tool_call is not None:
            return {"tool_calls": [self.tool_call.to_json()]}
        return {"reasoning_content": self.reasoning_content} if self.reasoning_content else {"content": self.content}


class Deltas:
    """Collects what a parser of calls finds. Blanks beside calls are left out, but where they part texts."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._deltas: list[Delta] = []
        self._blanks = ""
        self._after_call = self._shown = False
        self.calls = 0

    def content(self, text: str) -> None:
        """Text that is no call."""
        if self._after_call:
            text = text.lstrip()
        text = self._blanks + text
        shown = text.rstrip()
        self._blanks = text[len(shown) :]
        if not shown:
            return
        self._after_call, self._shown = False, True
        if self._deltas and self._deltas[-1].content:
            self._deltas[-1].content += shown
        else:
            self._deltas.append(Delta(content=shown))

    def begin(self, name: str) -> None:
        """A call of a function."""
        self._blanks, self._after_call = self._blanks if self._shown else "", True
        self._deltas.append(Delta(tool_call=ToolCallDelta(self.calls, self._new_id(), name)))
        self.calls += 1

    def arguments(self, text: str) -> None:
        """More of the arguments of the call that began last."""
        last = self._deltas[-1].tool_call if self._deltas else None
        if last is not None and last.id is None:
            last.arguments += text
        else:
            self._deltas.append(Delta(tool_call=ToolCallDelta(self.calls - 1, arguments=text)))

    def end(self) -> None:
        """No more text comes."""
        if self._blanks and not self.calls:
            self._deltas.append(Delta(content=self._blanks))
        self._blanks = ""

    def take(self) -> list[Delta]:
        """What was collected since."""
        deltas, self._deltas = self._deltas, []
        return deltas
