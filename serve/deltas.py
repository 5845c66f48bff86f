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
        self._texts: list[str] = []  # of the last delta
        self._blanks: list[str] = []
        self._after_call = self._shown = False
        self.calls = 0

    def content(self, text: str) -> None:
        """Text that is no call."""
        if self._after_call:
            text = text.lstrip()
        shown = text.rstrip()
        if shown:
            if not self._deltas or self._deltas[-1].tool_call is not None:
                self._append(Delta())
            self._texts += [*self._blanks, shown]
            self._blanks.clear()
            self._after_call, self._shown = False, True
        if blanks := text[len(shown) :]:
            self._blanks.append(blanks)

    def begin(self, name: str) -> None:
        """A call of a function."""
        if not self._shown:
            self._blanks.clear()
        self._after_call = True
        self._append(Delta(tool_call=ToolCallDelta(self.calls, self._new_id(), name)))
        self.calls += 1

    def arguments(self, text: str) -> None:
        """More of the arguments of the call that began last."""
        last = self._deltas[-1].tool_call if self._deltas else None
        if last is None or last.id is not None:
            self._append(Delta(tool_call=ToolCallDelta(self.calls - 1)))
        self._texts.append(text)

    def end(self) -> None:
        """No more text comes."""
        if self._blanks and not self.calls:
            self._append(Delta())
            self._texts += self._blanks
        self._blanks.clear()

    def take(self) -> list[Delta]:
        """What was collected since."""
        self._close()
        deltas, self._deltas = self._deltas, []
        return deltas

    def _append(self, delta: Delta) -> None:
        self._close()
        self._deltas.append(delta)

    def _close(self) -> None:
        """Give the last delta its text: pieces are joined once, for they may be single characters."""
        text = "".join(self._texts)
        self._texts.clear()
        if not text:
            return
        last = self._deltas[-1]
        if last.tool_call is None:
            last.content += text
        else:
            last.tool_call.arguments += text
