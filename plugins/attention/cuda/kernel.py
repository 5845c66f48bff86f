"""PagedAttention on the GPU."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ....builder.lowering.dims import Dim, Symbol
from ....builder.lowering.facts import Unsupported
from ....builder.lowering.kernels import Kernel
from ....builder.lowering.lowering import Lowering
from ....builder.lowering.nodes import parsed, path_of
from ....builder.lowering.program import CacheLayer
from ....builder.lowering.views import View
from ....builder.lowering.work import Work
from ....builder.targets.cuda.source.call import (
    BlockTable,
    CachePart,
    Context,
    Count,
    CudaCall,
    Extent,
    Launch,
    StepInput,
    When,
    tiles,
)
from ....errors import BuildError
from ....runtime.manifest import KvDtype
from .kv_cache import write_kernel
from .paged_attention import combine_kernel, split_kernel, walk_kernel

MOST_SPLITS = 32
"""Into how many splits the longest context is cut at most."""
_LEAST_SPLIT = 256
_ELEMENTS = {KvDtype.FP32: ("*fp32", 4), KvDtype.BF16: ("*bf16", 2), KvDtype.INT8: ("*i8", 1), KvDtype.FP8: ("*u8", 1)}


@dataclass(frozen=True)
class Partial:
    """Each sequence's splits of a context: maxima and sums [S, H, MOST_SPLITS], outputs [S, H, MOST_SPLITS, Dv]."""

    tops: View
    totals: View
    outputs: View


@dataclass
class AttentionCall(CudaCall):
    """q [T, H, D], k [T, Hk, D], v [T, Hk, Dv] -> out [T, H, Dv], through the KV cache of one layer."""

    q: View
    k: View
    v: View
    out: View
    sinks: View | None
    slopes: View | None
    layer: CacheLayer
    scale: float
    softcap: float
    window: int
    chunk: int
    partial: Partial

    def reads(self) -> list[View]:
        scales = self.layer.key_scales, self.layer.value_scales
        return [view for view in (self.q, self.k, self.v, self.sinks, self.slopes, *scales) if view is not None]

    def bf16_reads(self) -> list[View]:
        queries = [] if self.layer.dtype is KvDtype.FP32 else [self.q]
        return [*queries, self.k, self.v] if self.layer.dtype is KvDtype.BF16 else queries

    def writes(self) -> list[View]:
        return [self.out, self.partial.tops, self.partial.totals, self.partial.outputs]

    def work(self) -> Work:
        return Work(attention_ops=2 * self.layer.heads * (self.layer.k_dim + self.layer.v_dim))

    def launches(self, context: Context) -> list[Launch]:
        return [self._write(context), *self._attend(context)]

    def _write(self, context: Context) -> Launch:
        layer, tokens = self.layer, self.k.shape[0]
        pointers = {"k": self.k, "v": self.v, "token_seq": StepInput("token_seq")} | self._cache(context) | self._step()
        fixed = {
            "HEADS": layer.kv_heads,
            "K_TOKEN": self.k.strides[0],
            "K_HEAD": self.k.strides[1],
            "V_TOKEN": self.v.strides[0],
            "V_HEAD": self.v.strides[1],
            "BLOCK_HEADS": 1 << (layer.kv_heads - 1).bit_length(),
        }
        return Launch(write_kernel, pointers, (tiles(tokens),), fixed | self._constants(context))

    def _attend(self, context: Context) -> list[Launch]:
        """Steps where a sequence has several tokens walk through contexts; others give each split programs."""
        layer = self.layer
        group = layer.heads // layer.kv_heads
        split = split_of(context.max_seq_len)
        splits = -(-context.max_seq_len // split)
        tile = _tile(layer, group)
        masks = {"WINDOW": self.window, "CHUNK": self.chunk}
        fixed = self._constants(context) | tile.constants | {"SPLIT": split, "GROUP": group}
        fixed |= {"SCALE": self.scale, "SOFTCAP": self.softcap} | masks
        fixed |= {"Q_TOKEN": self.q.strides[0], "Q_HEAD": self.q.strides[1]}
        ends = {"OUT_TOKEN": self.out.strides[0], "OUT_HEAD": self.out.strides[1]}
        results = {"out": self.out, "sinks": self.sinks}
        cache, step = self._cache(context), self._step()
        sizes = {"num_warps": tile.num_warps, "num_stages": tile.num_stages}
        partial = {"tops": self.partial.tops, "totals": self.partial.totals, "outputs": self.partial.outputs}
        sequences, kv_heads = Extent.of(Count.SEQUENCES), Extent(layer.kv_heads)
        decodes, others = When(Count.QUERIES, 1, 1), When(Count.QUERIES, 2)
        combined = {"HEADS": layer.heads, "DV": layer.v_dim, "SPLIT": split, "SPLITS": splits}
        combined |= {"BLOCK_DV": fixed["BLOCK_DV"]} | ends | masks
        lengths = {key: step[key] for key in ("query_start", "context_length")}
        of_tiles = tiles(self.q.shape[0], tile.rows // group) + sequences
        title = f"{tile.rows} rows x {tile.keys} keys, splits of {split} in one program"
        split_title = f"{tile.rows} rows x {tile.keys} keys, a program a split of {split}"
        return [
            Launch(
                walk_kernel,
                {"q": self.q, "slopes": self.slopes, "sequences": Count.SEQUENCES} | results | cache | step,
                (of_tiles, kv_heads),
                fixed | ends,
                when=others,
                title=title,
                **sizes,
            ),
            Launch(
                split_kernel,
                {"q": self.q, "slopes": self.slopes} | partial | cache | step,
                (sequences, kv_heads, Extent(splits)),
                fixed | {"HEADS": layer.heads, "SPLITS": splits},
                when=decodes,
                title=split_title,
                **sizes,
            ),
            Launch(
                combine_kernel,
                results | partial | lengths,
                (sequences, Extent(layer.heads)),
                combined,
                num_warps=2,
                when=decodes,
                title=split_title,
            ),
        ]

    def _cache(self, context: Context) -> dict[str, CachePart | View | None]:
        layer = self.layer
        has_token_scales = layer.dtype in (KvDtype.INT8, KvDtype.FP8) and layer.key_scales is None
        element, size = _ELEMENTS[layer.dtype]
        elements = layer.kv_heads * context.block_size * (layer.k_dim + layer.v_dim) * size
        return {
            "pool": CachePart(layer, element),
            "token_scales": CachePart(layer, "*fp32", elements) if has_token_scales else None,
            "key_scales": layer.key_scales,
            "value_scales": layer.value_scales,
        }

    def _step(self) -> dict[str, StepInput | BlockTable]:
        return {
            "query_start": StepInput("query_start"),
            "context_length": StepInput("context_length"),
            "block_table": BlockTable(self.layer),
        }

    def _constants(self, context: Context) -> dict[str, int | str]:
        """What every kernel is told of the cache."""
        layer, block_bytes = self.layer, context.block_bytes(self.layer)
        return {
            "D": layer.k_dim,
            "DV": layer.v_dim,
            "POOL_BLOCK": block_bytes // _ELEMENTS[layer.dtype][1],
            "SCALES_BLOCK": block_bytes // 4,
            "BLOCK_SIZE": context.block_size,
            "TABLE_COLUMNS": context.table_columns,
            "KIND": str(layer.dtype) if layer.dtype in (KvDtype.INT8, KvDtype.FP8) else "float",
            "BLOCK_D": _padded(layer.k_dim),
            "BLOCK_DV": _padded(layer.v_dim),
        }


@dataclass(frozen=True)
class _Tile:
    """The tile that all kernels of a layer have: its rows, the keys beside them, and how a program is run."""

    rows: int
    keys: int
    num_warps: int
    num_stages: int
    constants: dict[str, int | bool]


def _tile(layer: CacheLayer, group: int) -> _Tile:
    """As large as registers hold on every GPU, with the softmax of one split beside that of those before."""
    is_fp32 = layer.dtype is KvDtype.FP32
    is_long = max(layer.k_dim, layer.v_dim) > 128
    rows = max(32 if is_long or is_fp32 else 64, 1 << (group - 1).bit_length())
    return _Tile(rows, 32, 8, 2, {"ROWS": rows, "KEYS": 32, "FP32": is_fp32})


def split_of(max_seq_len: int) -> int:
    """The length of a split: a power of two, of which the longest context has at most MOST_SPLITS."""
    return max(_LEAST_SPLIT, 1 << (-(-max_seq_len // MOST_SPLITS) - 1).bit_length())


def _padded(size: int) -> int:
    """To a power of two that matrix instructions take."""
    return max(16, 1 << (size - 1).bit_length())


def _lower(lowering: Lowering, node: ir.Node) -> None:
    (q, k, v, sinks, slopes), attributes = parsed(node)
    if not attributes.causal:
        raise Unsupported("attention that is not causal")
    queries, keys, values = (_heads(lowering, value) for value in (q, k, v))
    out = node.outputs[0]
    target = lowering.values.new(out)
    config, kv_heads = lowering.config, keys.shape[1].count
    key_scales, value_scales = _kv_scales(lowering, node, kv_heads)
    layer = CacheLayer(
        index=attributes.cache_layer,
        heads=queries.shape[1].count,
        kv_heads=kv_heads,
        k_dim=keys.shape[2].count,
        v_dim=values.shape[2].count,
        window=min(filter(None, (attributes.window, attributes.chunk)), default=0),
        dtype=KvDtype(config.kv_cache or config.dtype),
        key_scales=key_scales,
        value_scales=value_scales,
    )
    lowering.program.layers.append(layer)
    splits = (Dim(1, Symbol.ROWS), Dim(layer.heads), Dim(MOST_SPLITS))  # as many rows as a step can have sequences
    partial = Partial(
        tops=lowering.values.allocate("split_tops", splits),
        totals=lowering.values.allocate("split_totals", splits),
        outputs=lowering.values.allocate("split_outputs", (*splits, Dim(layer.v_dim))),
    )
    call = AttentionCall(
        name=path_of(node),
        q=queries,
        k=keys,
        v=values,
        out=lowering.values.heads(target),
        sinks=lowering.weights.optional_view(sinks),
        slopes=lowering.weights.optional_view(slopes),
        layer=layer,
        scale=attributes.scale,
        softcap=attributes.softcap,
        window=attributes.window,
        chunk=attributes.chunk,
        partial=partial,
    )
    lowering.values.emit(call)
    lowering.values.assign(out, target)


def _kv_scales(lowering: Lowering, node: ir.Node, kv_heads: int) -> tuple[View | None, View | None]:
    """The checkpoint's own scales of the node's keys and values, if it has any for the cache that is wanted."""
    module = (node.name or "").rpartition("/")[0]
    scales = lowering.kv_scales.get(module)
    if scales is None or scales.type != lowering.config.kv_cache:
        return None, None
    views = []
    for name, values in (("k_scale", scales.key), ("v_scale", scales.value)):
        if values.size not in (1, kv_heads):
            raise BuildError(f"{module}.{name} has {values.size} scales for {kv_heads} key-value heads")
        views.append(lowering.weights.vector(f"{module}.{name}", np.array(np.broadcast_to(values, kv_heads))))
    return views[0], views[1]


def _heads(lowering: Lowering, value: ir.Value) -> View:
    shape = lowering.facts.shape(value)
    if len(shape) != 4 or not shape[0].is_one or shape[2].symbol is not Symbol.TOKENS or shape[2].count != 1:
        raise Unsupported(f"attention over {value.name!r}, whose shape is not [1, heads, T, head_dim]")
    return lowering.values.heads(lowering.values.view(value))


KERNELS = (Kernel("PagedAttention", _lower),)
