"""The last call of a step: the likeliest token of every row of logits."""

from dataclasses import dataclass

from ....plugins.sampling.cuda.greedy import greedy_kernel
from ...lowering.dims import Dim, Symbol
from ...lowering.program import Program
from ...lowering.views import Buffer, DType, View
from .source.call import Context, CudaCall, Launch, tiles

_BLOCK = 4096


@dataclass
class GreedyCall(CudaCall):
    """tokens int32 [R] of logits [R, V]; below 0 where a row has none."""

    logits: View
    tokens: View

    def reads(self) -> list[View]:
        return [self.logits]

    def writes(self) -> list[View]:
        return [self.tokens]

    def launches(self, context: Context) -> list[Launch]:
        sizes = {
            "VOCABULARY": self.logits.shape[1].count,
            "LOGITS_ROW": self.logits.strides[0],
            "BLOCK": _BLOCK,
        }
        rows = tiles(self.tokens.shape[0])
        return [Launch(greedy_kernel, {"logits": self.logits, "tokens": self.tokens}, (rows,), sizes)]


def add_greedy_call(program: Program) -> View:
    """Append it; the tokens."""
    assert program.logits is not None
    tokens = View(Buffer("tokens", DType.I32, Symbol.ROWS, 1), (Dim(1, Symbol.ROWS),), (1,))
    program.calls.append(GreedyCall("sampling.greedy", program.logits, tokens))
    return tokens
