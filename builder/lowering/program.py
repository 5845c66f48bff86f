"""The lowered network: kernel calls on views of buffers, in order, and the weights and KV cache that they need."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import onnx_ir as ir

from ...quantization.quantized import QuantizedWeight
from ...quantization.scheme import LinearScheme
from ...runtime.manifest import KvDtype
from .expressions import Expr
from .stored_rows import StoredRows
from .views import Buffer, View
from .work import Work

Rows = Callable[[int, int], np.ndarray | QuantizedWeight]
"""Rows [first, last) of a weight [n, k]: in float32 or, for scaled schemes, quantized."""


class PackedLayout(Protocol):
    """How a target stores a weight."""

    @property
    def nbytes(self) -> int: ...

    def pack(self, rows: Rows, out: np.ndarray, up_rows: Rows | None = None) -> None:
        """Write the weight into `out`, uint8 [nbytes]; a gated one has a second matrix, `up_rows`."""
        ...


@dataclass(eq=False)
class LinearWeight:
    """A weight packed for the linear kernels: [n, k] from `source` ([k, n] when `transposed`); gate and up when two.

    `count`: of a mixture of experts, whose sources are [count, n, k] and lie one after the other; a token takes
    `active` of them.
    `stored`: the same matrices in the integers or FP8 that the checkpoint holds, if the kernels take them as they are.
    `dequantized`: why they do not, if it holds any. `input_scale`: of inputs whose activation scheme is static.
    `is_packed`: it lies in weights.bin; otherwise the target keeps its `nbytes` in files of its own.
    """

    sources: tuple[ir.Value, ...]
    n: int
    k: int
    scheme: LinearScheme
    transposed: bool = False
    input_scale: float | None = None
    stored: tuple[StoredRows, ...] = ()
    dequantized: str = ""
    count: int = 1
    active: int = 1
    is_packed: bool = True
    offset: int = -1
    nbytes: int = -1


@dataclass(eq=False)
class PlainWeight:
    """A tensor stored as it is, row-major: float32, int32, bool as bytes, or bfloat16 (embedding tables)."""

    source: ir.Value
    buffer: Buffer
    bf16: bool = False
    add: float = 0.0  # added to every element when packed: the offset of an RMSNorm

    @property
    def nbytes(self) -> int:
        return self.buffer.row_size * (2 if self.bf16 else self.buffer.dtype.nbytes)


@dataclass(frozen=True)
class Tactic:
    """The kernel that a fused operation runs with, and what it does for how many rows of a step ("1-2", "3-")."""

    node: str
    kernel: str
    variants: dict[str, str]


@dataclass
class Call:
    """One kernel call; `name` is the node's module path. Those of fused operations are defined with their plugins."""

    name: str

    def reads(self) -> list[View]:
        return []

    def writes(self) -> list[View]:
        return []

    def work(self) -> Work:
        """The arithmetic that a step needs for the call; bytes of weights are added by `Program.work`."""
        return Work()

    def table(self) -> "PlainWeight | LinearWeight | None":
        """The weight of which the call reads a row for each token, if it is such a lookup."""
        return None


@dataclass
class LoopCall(Call):
    """One loop nest over `shape` that stores each expression, broadcast, through its view."""

    outputs: list[tuple[View, Expr]]

    def reads(self) -> list[View]:
        return [leaf for _, expr in self.outputs for leaf in expr.leaves()]

    def writes(self) -> list[View]:
        return [view for view, _ in self.outputs]


@dataclass
class AxisCall(Call):
    """A function along the last axis of x, for every index of the others.

    kind: softmax, log_softmax (y like x); sum, mean, max, min, log_sum_exp, arg_max (y without that axis); cum_sum
    (y like x); top_k (y values, y2 indices).
    """

    kind: str
    x: View
    y: View
    y2: View | None = None

    def reads(self) -> list[View]:
        return [self.x]

    def writes(self) -> list[View]:
        return [view for view in (self.y, self.y2) if view is not None]


@dataclass
class GatherCall(Call):
    """y[i.., j.., k..] = data[i.., indices[j..], k..]; `axis` is that of the indices in data."""

    data: View
    indices: View
    axis: int
    y: View

    def reads(self) -> list[View]:
        return [self.data, self.indices]

    def writes(self) -> list[View]:
        return [self.y]


@dataclass
class GatherElementsCall(GatherCall):
    """y[i.., j, k..] = data[i.., indices[i.., j, k..], k..]; all of one rank."""


@dataclass
class ScatterElementsCall(Call):
    """y[i.., indices[i.., j, k..], k..] = updates[i.., j, k..]; what is not named stays as it is in y."""

    indices: View
    updates: View
    axis: int
    y: View

    def reads(self) -> list[View]:
        return [self.indices, self.updates, self.y]

    def writes(self) -> list[View]:
        return [self.y]


@dataclass
class MatMulCall(Call):
    """y[..., m, n] = sum over k of a[..., m, k] * b[..., k, n]; the leading dimensions are already broadcast."""

    a: View
    b: View
    y: View

    def reads(self) -> list[View]:
        return [self.a, self.b]

    def writes(self) -> list[View]:
        return [self.y]


@dataclass(frozen=True)
class CacheLayer:
    """The KV cache of one attention layer. Sizes in elements.

    `key_scales` and `value_scales` [kv_heads]: of a quantized cache, where they are known beforehand; otherwise each
    token has its own in the cache.
    """

    index: int
    heads: int
    kv_heads: int
    k_dim: int
    v_dim: int
    window: int
    dtype: KvDtype
    key_scales: View | None = None
    value_scales: View | None = None

    def token_bytes(self) -> int:
        """What a token's keys and values take, their scales included."""
        size = {KvDtype.FP32: 4, KvDtype.BF16: 2, KvDtype.INT8: 1, KvDtype.FP8: 1}[self.dtype]
        scales = 2 * 4 if size == 1 and self.key_scales is None else 0
        return self.kv_heads * ((self.k_dim + self.v_dim) * size + scales)


@dataclass(frozen=True)
class CacheGroup:
    """Layers that share a block table: all full ones, or those of one window (0: full)."""

    window: int
    layers: tuple[CacheLayer, ...]


@dataclass(frozen=True, eq=False)
class State:
    """What an operation keeps of each sequence, float32 of `shape`, at `offset` bytes into the sequence's slot."""

    name: str
    operation: str
    shape: tuple[int, ...]
    offset: int


@dataclass
class Program:
    """All that a target compiles and packs, and that the manifest tells."""

    calls: list[Call] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    linear_weights: list[LinearWeight] = field(default_factory=list)
    plain_weights: list[PlainWeight] = field(default_factory=list)
    layers: list[CacheLayer] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    state_bytes: int = 0  # of a sequence's slot
    logits: View | None = None
    vocab_size: int = 0
    arena_bytes: int = 0
    weights_bytes: int = 0

    @property
    def packed_weights(self) -> list[LinearWeight]:
        """The linear weights that lie in weights.bin."""
        return [weight for weight in self.linear_weights if weight.is_packed]

    @property
    def groups(self) -> list[CacheGroup]:
        """Cache groups in the order of the step's block tables: by first layer."""
        windows = dict.fromkeys(layer.window for layer in self.layers)
        return [CacheGroup(w, tuple(layer for layer in self.layers if layer.window == w)) for w in windows]

    def add_state(self, name: str, operation: str, shape: tuple[int, ...]) -> State:
        """Room for a state in every sequence's slot, 64-byte aligned."""
        state = State(name, operation, shape, self.state_bytes)
        self.states.append(state)
        self.state_bytes += -(-4 * math.prod(shape) // 64) * 64  # rounded up
        return state

    def work(self) -> Work:
        """The work of one step."""
        weights = sum(weight.nbytes * weight.active // weight.count for weight in self.linear_weights)
        return sum((call.work() for call in self.calls), Work(linear_bytes=weights))

    def table_bytes(self) -> int:
        """Bytes of all embedding tables; rows that lookups read out of the head count nothing."""
        tables = {call.table() for call in self.calls}
        return sum(table.nbytes for table in tables if isinstance(table, PlainWeight))
