"""PagedAttention on the GPU."""

from dataclasses import dataclass, field

from ....builder.lowering.dims import Dim, Symbol
from ....builder.lowering.program import CacheLayer
from ....builder.lowering.values import Values
from ....builder.lowering.views import View
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
from ....runtime.manifest import KvDtype
from ..lower import Attention, kernels
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
class AttentionCall(Attention, CudaCall):
    """walk_kernel, or split_kernel and combine_kernel, after write_kernel has written k and v to the cache."""

    partial: Partial = field(init=False)

    def allocate(self, values: Values) -> None:
        splits = (Dim(1, Symbol.ROWS), Dim(self.layer.heads), Dim(MOST_SPLITS))  # as many rows as sequences at most
        self.partial = Partial(
            tops=values.allocate("split_tops", splits),
            totals=values.allocate("split_totals", splits),
            outputs=values.allocate("split_outputs", (*splits, Dim(self.layer.v_dim))),
        )

    def reads(self) -> list[View]:
        scales = self.layer.key_scales, self.layer.value_scales
        return [*super().reads(), *(view for view in scales if view is not None)]

    def bf16_reads(self) -> list[View]:
        queries = [] if self.layer.dtype is KvDtype.FP32 else [self.q]
        return [*queries, self.k, self.v] if self.layer.dtype is KvDtype.BF16 else queries

    def writes(self) -> list[View]:
        return [*super().writes(), self.partial.tops, self.partial.totals, self.partial.outputs]

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


KERNELS = kernels(AttentionCall)
