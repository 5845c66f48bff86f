"""The lowered network: kernel calls on views of buffers, in order, and the weights and KV cache that they need."""

from dataclasses import dataclass, field

import onnx_ir as ir

from ...quantization.scheme import LinearScheme
from ...runtime.manifest import KvDtype
from .dims import Dim
from .expressions import Expr
from .stored_rows import StoredRows
from .views import Buffer, View


@dataclass(eq=False)
class LinearWeight:
    """A weight packed for the linear kernels: [n, k] from `source` ([k, n] when `transposed`); gate and up when two.

    `stored`: the same matrices in the integers or FP8 that the checkpoint holds, if the kernels take them as they are.
    `dequantized`: why they do not, if it holds any. `input_scale`: of inputs whose activation scheme is static.
    """

    sources: tuple[ir.Value, ...]
    n: int
    k: int
    scheme: LinearScheme
    transposed: bool = False
    input_scale: float | None = None
    stored: tuple[StoredRows, ...] = ()
    dequantized: str = ""
    offset: int = -1
    nbytes: int = -1


@dataclass(eq=False)
class PlainWeight:
    """A tensor stored as it is, row-major: float32, int32, bool as bytes, or bfloat16 (embedding tables)."""

    source: ir.Value
    buffer: Buffer
    bf16: bool = False
    add: float = 0.0  # added to every element when packed: the offset of an RMSNorm


@dataclass
class Call:
    """One kernel call; `name` is the node's module path."""

    name: str

    def reads(self) -> list[View]:
        return []

    def writes(self) -> list[View]:
        return []


@dataclass
class LinearCall(Call):
    """y [M, N] = act(x W^T + bias) + residual."""

    x: View
    weight: LinearWeight
    bias: View | None
    residual: View | None
    activation: str
    y: View
    rows: Dim

    def reads(self) -> list[View]:
        return [view for view in (self.x, self.bias, self.residual) if view is not None]

    def writes(self) -> list[View]:
        return [self.y]


@dataclass
class GatedMlpCall(Call):
    """y [M, N] = act(x Wg^T + gate_bias) * (x Wu^T + up_bias)."""

    x: View
    weight: LinearWeight
    gate_bias: View | None
    up_bias: View | None
    activation: str
    y: View
    rows: Dim

    def reads(self) -> list[View]:
        return [view for view in (self.x, self.gate_bias, self.up_bias) if view is not None]

    def writes(self) -> list[View]:
        return [self.y]


@dataclass
class AttentionCall(Call):
    """q [T, H, D], k [T, Hk, D], v [T, Hk, Dv] -> out [T, H, Dv], through the KV cache of one layer."""

    q: View
    k: View
    v: View
    out: View
    sinks: View | None
    layer: int
    scale: float
    softcap: float
    window: int

    def reads(self) -> list[View]:
        return [view for view in (self.q, self.k, self.v, self.sinks) if view is not None]

    def writes(self) -> list[View]:
        return [self.out]


@dataclass
class RotaryCall(Call):
    """y [T, H, D] = x with its first `rotary_dim` elements rotated by cos and sin [T, C]; y may be x."""

    x: View
    cos: View
    sin: View
    y: View
    style: str
    rotary_dim: int
    cos_stride: int

    def reads(self) -> list[View]:
        return [self.x, self.cos, self.sin]

    def writes(self) -> list[View]:
        return [self.y]


@dataclass
class NormCall(Call):
    """Norms of x [T, H, D] over D. kind: rms_norm, layer_norm, or skip_* (x [T, D]; also writes total = x + skip)."""

    kind: str
    x: View
    skip: View | None
    weight: View | None
    bias: View | None
    epsilon: float
    y: View
    total: View | None
    rows: Dim

    def reads(self) -> list[View]:
        return [view for view in (self.x, self.skip, self.weight, self.bias) if view is not None]

    def writes(self) -> list[View]:
        return [view for view in (self.y, self.total) if view is not None]


@dataclass
class EmbeddingCall(Call):
    """y [M, D] = table[ids]; a LinearWeight is the head's, which an int8 embedding shares."""

    table: PlainWeight | LinearWeight
    entries: int
    ids: View
    y: View
    rows: Dim

    def reads(self) -> list[View]:
        return [self.ids]

    def writes(self) -> list[View]:
        return [self.y]


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

    kind: softmax, log_softmax (y like x); sum, mean, max, min, l2, prod, sum_square, log_sum_exp, arg_max (y without
    that axis); cum_sum (y like x); top_k (y values, y2 indices).
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

    @property
    def cpp_element(self) -> str:
        """What an element is, as kernels have it."""
        name = f"es::{self.dtype.capitalize()}"
        if self.dtype not in (KvDtype.INT8, KvDtype.FP8):
            return name
        return f"es::PerToken<{name}>" if self.key_scales is None else f"es::PerHead<{name}>"

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


@dataclass
class Program:
    """All that emit, pack and the manifest need."""

    calls: list[Call] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    linear_weights: list[LinearWeight] = field(default_factory=list)
    plain_weights: list[PlainWeight] = field(default_factory=list)
    layers: list[CacheLayer] = field(default_factory=list)
    logits: View | None = None
    vocab_size: int = 0
    arena_bytes: int = 0
    weights_bytes: int = 0

    @property
    def groups(self) -> list[CacheGroup]:
        """Cache groups in the order of the step's block tables: by first layer."""
        windows = dict.fromkeys(layer.window for layer in self.layers)
        return [CacheGroup(w, tuple(layer for layer in self.layers if layer.window == w)) for w in windows]
