"""The text of the engine's step while it is written, one call after another."""

import re
from dataclasses import dataclass, field

from .....plugins.cpu.isa import Isa
from ....lowering.program import State
from ....lowering.views import Buffer, Home, View
from .spelling import TYPES


@dataclass
class Writer:
    """Takes the lines of calls. A buffer is declared where it is first used; pointers are offsets known at build time.

    `cache_groups`: cache layer -> the group whose block table it reads.
    """

    isa: Isa
    block_size: int
    cache_groups: dict[int, int]
    lines: list[str] = field(default_factory=list)
    aliases: dict[str, list[str]] = field(default_factory=dict)  # name -> the types that are called name0, name1, ...
    scratch: dict[str, None] = field(default_factory=dict)  # sizes that the scratch memory must have, in bytes
    _names: dict[Buffer, str] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _body: list[str] = field(default_factory=list)

    # ---- calls

    def begin(self, name: str) -> None:
        """Begin the call of a node; `name` becomes a comment."""
        self.lines.append(f"  // {_comment(name)}")

    def add(self, text: str) -> None:
        """A line of the call."""
        self._body.append(text)

    def end(self) -> None:
        """End the call: its lines come after the declarations of the buffers that it is the first to use."""
        self.lines += self._body
        self._body.clear()

    def need_scratch(self, num_bytes: str) -> None:
        """Ask for scratch memory of at least so many bytes, an expression over kLimits and `threads`."""
        self.scratch[num_bytes] = None

    def alias(self, name: str, cpp_type: str) -> str:
        """The short name, `name` and a number, of a type that several calls share."""
        types = self.aliases.setdefault(name, [])
        if cpp_type not in types:
            types.append(cpp_type)
        return f"{name}{types.index(cpp_type)}"

    # ---- arguments

    def pointer(self, view: View) -> str:
        """The name of the view's buffer; the view's offset is not included."""
        buffer = view.buffer
        if buffer not in self._names:
            self._names[buffer] = name = self._unique(buffer.name)
            kind, offset = TYPES[buffer.dtype], buffer.offset
            if buffer.home is Home.INPUT:
                line = f"const int32_t* const {name} = s.{buffer.name};"
            elif buffer.home is Home.WEIGHTS:
                line = f"const {kind}* const {name} = reinterpret_cast<const {kind}*>(w + {offset});"
            else:
                rows = "" if buffer.symbol.value == "1" else f"{buffer.symbol.value}, "
                shape = f"[{rows}{buffer.row_size}]"
                line = f"{kind}* const {name} = reinterpret_cast<{kind}*>(arena + {offset});  // {shape}"
            self.lines.append("  " + line)
        return self._names[buffer]

    def at(self, view: View) -> str:
        """A pointer to the view's first element."""
        return f"{self.pointer(view)} + {view.offset}" if view.offset else self.pointer(view)

    def at_or_null(self, view: View | None) -> str:
        return "nullptr" if view is None else self.at(view)

    def rows(self, view: View | None) -> str:
        """A view [M, C] as es::Rows or es::MutRows."""
        return "{nullptr, 0}" if view is None else f"{{{self.at(view)}, {view.strides[0]}}}"

    def heads(self, view: View) -> str:
        """A view [T, H, D] as es::Heads or es::MutHeads."""
        return f"{{{self.at(view)}, {view.strides[0]}, {view.strides[1]}}}"

    def states(self, state: State) -> str:
        """The state of every sequence, as es::StateLayer; `state_step` is the step that it is for."""
        return f"e.slots.layer({state.offset})"

    def _unique(self, text: str) -> str:
        base = re.sub(r"\W+", "_", text).strip("_")
        base = base if base and not base[0].isdigit() else f"v_{base}"
        name, number = base + "_", 2
        while name in self._taken:
            name, number = f"{base}_{number}", number + 1
        self._taken.add(name)
        return name


def _comment(text: str) -> str:
    """One line of text that cannot end a comment or continue onto the next line."""
    return re.sub(r"[^\x20-\x7e]", "?", text).rstrip("\\ ")[:200]
