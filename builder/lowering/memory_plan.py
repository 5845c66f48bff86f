"""Places buffers in one arena so that no two that are alive at the same time overlap."""

from dataclasses import dataclass

from .dims import Symbol
from .program import Program
from .views import Buffer, Home

ALIGNMENT = 64


@dataclass(frozen=True)
class Lifetime:
    """A buffer of `nbytes` in use from call `first` to call `last`, both included."""

    first: int
    last: int
    nbytes: int

    def meets(self, other: "Lifetime") -> bool:
        return self.first <= other.last and other.first <= self.last


def align(nbytes: int, alignment: int = ALIGNMENT) -> int:
    return -(-nbytes // alignment) * alignment


def place(lifetimes: list[Lifetime], alignment: int = ALIGNMENT) -> tuple[list[int], int]:
    """Byte offsets of all, and the arena's size.

    Greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020): the largest
    first, each into the smallest gap that fits between those placed that are alive at the same time.
    """
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    for index in sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, lifetimes[i].first, i)):
        item = lifetimes[index]
        taken = sorted(
            (offsets[other], offsets[other] + align(lifetimes[other].nbytes, alignment))
            for other in placed
            if lifetimes[other].meets(item)
        )
        offsets[index] = best_gap(taken, align(item.nbytes, alignment))
        placed.append(index)
    total = max(
        (offset + align(item.nbytes, alignment) for offset, item in zip(offsets, lifetimes, strict=True)), default=0
    )
    return offsets, total


def best_gap(taken: list[tuple[int, int]], nbytes: int) -> int:
    """The start of the smallest gap between `taken` (sorted by start) that fits, or the end of them all."""
    best, best_size, end = -1, 0, 0
    for start, stop in taken:
        gap = start - end
        if gap >= nbytes and (best < 0 or gap < best_size):
            best, best_size = end, gap
        end = max(end, stop)
    return best if best >= 0 else end


def plan_memory(program: Program, max_num_tokens: int, max_rows: int, alignment: int = ALIGNMENT) -> None:
    """Set the offset of every arena buffer and `arena_bytes`. The logits stay alive to the end of the step."""
    spans: dict[Buffer, list[int]] = {}
    for index, call in enumerate(program.calls):
        for view in (*call.reads(), *call.writes()):
            if view.buffer.home is Home.ARENA:
                spans.setdefault(view.buffer, []).append(index)
    if program.logits is not None and program.logits.buffer in spans:
        spans[program.logits.buffer].append(len(program.calls))
    units = {Symbol.ONE: 1, Symbol.TOKENS: max_num_tokens, Symbol.ROWS: max_rows}
    lifetimes = [Lifetime(min(s), max(s), b.row_bytes * units[b.symbol]) for b, s in spans.items()]
    offsets, program.arena_bytes = place(lifetimes, alignment)
    for buffer, offset in zip(spans, offsets, strict=True):
        buffer.offset = offset
    program.buffers = list(spans)
