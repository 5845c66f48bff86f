"""PagedAttention on the GPU."""

from dataclasses import dataclass, field

from ....builder.lowering.dims import Dim, Symbol
from ....builder.lowering.program import CacheLayer
from ....builder.lowering.values import Values
from ....builder.lowering.views import View
from ....builder.targets.cuda.source.call import (
    BlockTable,
    CachePart,
    Candidate,
    Choice,
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
_DECODES, _PROMPTS = When(Count.QUERIES, 1, 1), When(Count.QUERIES, 2)
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

    def launches(self, context: Context) -> list[Launch | Choice]:
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

    def _attend(self, context: Context) -> list[Choice]:
        """Steps where a sequence has several tokens walk through contexts; others give each split programs.

        Candidates differ in how many loads are under way; a tile is the same in all, and so is the order of its sums.
        """
        layer = self.layer
        split, tile = split_of(context.max_seq_len), _tile(layer, self._group, context.sm)
        shape = f"attention {layer.heads}x{layer.kv_heads} of {layer.k_dim} {layer.dtype} window {self.window}"
        name = f"{tile.rows} rows x {tile.keys} keys"
        walks, splits = [], []
        for stages in sorted((2, 3), key=lambda count: count != tile.num_stages):
            walk = f"{name}, splits of {split} in one program, {stages} stages"
            walks.append(Candidate(walk, (self._walk(context, tile, stages),)))
            title = f"{name}, a program a split of {split}, {stages} stages"
            splits.append(Candidate(title, self._split(context, tile, stages)))
        return [Choice(shape, _PROMPTS, tuple(walks)), Choice(shape, _DECODES, tuple(splits))]

    def _walk(self, context: Context, tile: "_Tile", stages: int) -> Launch:
        of_tiles = tiles(self.q.shape[0], tile.rows // self._group) + Extent.of(Count.SEQUENCES)
        pointers = {"q": self.q, "slopes": self.slopes, "sequences": Count.SEQUENCES, "out": self.out}
        pointers |= {"sinks": self.sinks} | self._cache(context) | self._step()
        fixed = self._tile_constants(context, tile) | self._ends
        grid = (of_tiles, Extent(self.layer.kv_heads))
        return Launch(walk_kernel, pointers, grid, fixed, tile.num_warps, stages, _PROMPTS)

    def _split(self, context: Context, tile: "_Tile", stages: int) -> tuple[Launch, Launch]:
        layer, split = self.layer, split_of(context.max_seq_len)
        splits = -(-context.max_seq_len // split)
        partial = {"tops": self.partial.tops, "totals": self.partial.totals, "outputs": self.partial.outputs}
        step, sequences = self._step(), Extent.of(Count.SEQUENCES)
        sizes = {"HEADS": layer.heads, "SPLITS": splits}
        pointers = {"q": self.q, "slopes": self.slopes} | partial | self._cache(context) | step
        fixed = self._tile_constants(context, tile) | sizes
        grid = (sequences, Extent(layer.kv_heads), Extent(splits))
        lengths = {key: step[key] for key in ("query_start", "context_length")}
        combined = sizes | {"DV": layer.v_dim, "SPLIT": split, "BLOCK_DV": fixed["BLOCK_DV"]} | self._ends
        combined |= {"WINDOW": self.window, "CHUNK": self.chunk}
        results = {"out": self.out, "sinks": self.sinks} | partial | lengths
        return (
            Launch(split_kernel, pointers, grid, fixed, tile.num_warps, stages, _DECODES),
            Launch(combine_kernel, results, (sequences, Extent(layer.heads)), combined, num_warps=2, when=_DECODES),
        )

    @property
    def _group(self) -> int:
        """Query heads that share a key-value head."""
        return self.layer.heads // self.layer.kv_heads

    @property
    def _ends(self) -> dict[str, int]:
        return {"OUT_TOKEN": self.out.strides[0], "OUT_HEAD": self.out.strides[1]}

    def _tile_constants(self, context: Context, tile: "_Tile") -> dict[str, int | str | bool | float]:
        """What the kernels that attend are told of the tile and the layer."""
        fixed = {"SPLIT": split_of(context.max_seq_len), "GROUP": self._group, "SCALE": self.scale}
        fixed |= {"SOFTCAP": self.softcap, "WINDOW": self.window, "CHUNK": self.chunk}
        fixed |= {"Q_TOKEN": self.q.strides[0], "Q_HEAD": self.q.strides[1]}
        return self._constants(context) | tile.constants | fixed

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


def _tile(layer: CacheLayer, group: int, sm: int) -> _Tile:
    """As large as registers hold on every GPU, with the softmax of one split beside that of those before."""
    is_fp32 = layer.dtype is KvDtype.FP32
    is_long = max(layer.k_dim, layer.v_dim) > 128
    rows = max(32 if is_long or is_fp32 else 64, 1 << (group - 1).bit_length())
    stages = 3 if is_long and layer.dtype is KvDtype.FP8 and sm == 90 else 2  # where the compiler spills with 2
    return _Tile(rows, 32, 8, stages, {"ROWS": rows, "KEYS": 32, "FP32": is_fp32})


def split_of(max_seq_len: int) -> int:
    """The length of a split: a power of two, of which the longest context has at most MOST_SPLITS."""
    return max(_LEAST_SPLIT, 1 << (-(-max_seq_len // MOST_SPLITS) - 1).bit_length())


def _padded(size: int) -> int:
    """To a power of two that matrix instructions take."""
    return max(16, 1 << (size - 1).bit_length())


KERNELS = kernels(AttentionCall)
