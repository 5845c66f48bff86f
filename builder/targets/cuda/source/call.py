"""A call of kernels of the GPU's, as the plugins define them."""

from collections.abc import Sequence
from dataclasses import dataclass

from ....lowering.program import CacheLayer, Call, Tactic
from ....lowering.views import View
from .choice import Candidate, Choice, Picks
from .launch import (
    BlockTable,
    CachePart,
    Count,
    Extent,
    Launch,
    StepInput,
    Typed,
    WeightPart,
    When,
    count,
    counted,
    tiles,
)

__all__ = [
    "BlockTable",
    "CachePart",
    "Candidate",
    "Choice",
    "Context",
    "Count",
    "CudaCall",
    "Extent",
    "Launch",
    "Picks",
    "StepInput",
    "Typed",
    "WeightPart",
    "When",
    "count",
    "counted",
    "tiles",
]


@dataclass(frozen=True)
class Context:
    """What an engine's kernels may depend on, beside their own call.

    `sm`: the compute capability, 90 for 9.0. `table_columns`: from a sequence's row of a block table to the next.
    `block_bytes`: by cache layer, from a block to the next: all layers of a group lie side by side in its blocks.
    `layer_offsets`: by cache layer, where it lies in a block. `batch_invariant`: whether all candidates of a
    choice must add up in one order.
    """

    sm: int
    max_num_tokens: int
    max_batch_size: int
    max_seq_len: int
    block_size: int
    table_columns: int
    strides: dict[int, int]
    layer_offsets: dict[int, int]
    batch_invariant: bool = True

    def block_bytes(self, layer: CacheLayer) -> int:
        """Bytes from a block of the layer's group to the next."""
        return self.strides[layer.index]

    def most(self, count: Count) -> int:
        """The largest that a count can be."""
        return self.max_num_tokens if count in (Count.TOKENS, Count.QUERIES) else self.max_batch_size


@dataclass
class CudaCall(Call):
    """Launches of Triton kernels for one node."""

    def bf16_reads(self) -> list[View]:
        """Of what the call reads, that which it rounds to bf16 before anything else, so that it may lie there so."""
        return []

    def launches(self, context: Context) -> Sequence[Launch | Choice]:
        """Its launches, in order, for all steps; each step has those whose `when` holds."""
        raise NotImplementedError

    def tactic(self, context: Context, picks: Picks) -> Tactic | None:
        """The kernels among which a step chooses, for the report; None where there is nothing to choose."""
        variants = {}
        for item in self.launches(context):
            if isinstance(item, Choice):
                pick = picks.of(item)
                variants["any" if item.when is None else item.when.rows] = f"{pick.candidate.title} ({pick.reason})"
            elif item.when is not None:
                variants[item.when.rows] = item.title
        if not variants:
            return None
        return Tactic(self.name, f"{type(self).__name__.removesuffix('Call').lower()} (sm_{context.sm})", variants)
