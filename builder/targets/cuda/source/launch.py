"""A launch of a Triton kernel: what it is given, over which grid, and for which steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .....runtime.executors.cuda.launches import Count, Extent, When
from ....lowering.dims import Dim, Symbol
from ....lowering.program import CacheLayer, LinearWeight, PlainWeight
from ....lowering.views import View

Constant = int | float | bool | str | None
COUNTS = {Symbol.TOKENS: Count.TOKENS, Symbol.ROWS: Count.ROWS}


@dataclass(frozen=True)
class WeightPart:
    """A pointer `offset` bytes into a packed weight, to elements of a type that Triton names ("*bf16", "*i8")."""

    weight: LinearWeight
    type: str
    offset: int = 0


@dataclass(frozen=True)
class CachePart:
    """A pointer `offset` bytes into what a cache layer has of block 0 of its group's pool."""

    layer: CacheLayer
    type: str
    offset: int = 0


@dataclass(frozen=True)
class BlockTable:
    """A pointer to the block table, int32 [max_batch_size, table_columns], of a layer's group."""

    layer: CacheLayer


@dataclass(frozen=True)
class StepInput:
    """A pointer to an int32 array of the step."""

    name: Literal["input_ids", "position_ids", "logits_rows", "query_start", "context_length", "token_seq"]


@dataclass(frozen=True)
class Typed:
    """A pointer to a view's first element, as of another type than its buffer's."""

    view: View
    type: str


Argument = View | PlainWeight | WeightPart | CachePart | BlockTable | StepInput | Typed | Count | None
"""What a kernel's parameter is: a pointer, or a count of the step as int32. None: nothing, a constant in the kernel."""


def tiles(dim: Dim, block: int = 1) -> Extent:
    """How many tiles of `block` cover a size."""
    if dim.is_static:
        return Extent(-(-dim.count // block))
    return Extent(terms=((COUNTS[dim.symbol], dim.count, block),))


def count(dim: Dim) -> Count:
    """The count that a size is a multiple of. A static size is none: it is a constant of the kernel."""
    return COUNTS[dim.symbol]


def counted(dim: Dim, each: int = 1) -> tuple[dict[str, Count], dict[str, int]]:
    """A size times `each`, as the argument `units` and the constant TIMES of a kernel, whose product it is."""
    if dim.is_static:
        return {}, {"units": 1, "TIMES": dim.count * each}
    return {"units": count(dim)}, {"TIMES": dim.count * each}


@dataclass(frozen=True)
class Launch:
    """`kernel`: a function of triton.jit. `arguments` and `constants` by the names of its parameters, all of them.

    `title`: what the kernel does, where a call has several.
    """

    kernel: Any
    arguments: Mapping[str, Argument]
    grid: tuple[Extent, ...]
    constants: Mapping[str, Constant] = field(default_factory=dict)
    num_warps: int = 4
    num_stages: int = 2
    when: When | None = None
    title: str = ""
