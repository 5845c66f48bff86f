"""The attention kernels in Triton: right against float64, and the same bits however the work is cut."""

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import pytest
import torch
from triton_interpreter import interpret

from enginesmith.plugins.attention.cuda.kv_cache import write_kernel
from enginesmith.plugins.attention.cuda.paged_attention import combine_kernel, split_kernel, walk_kernel
from enginesmith.plugins.attention.reference import LARGEST, attention, cached
from enginesmith.quantization.scheme import KvType

BLOCKS = 24
SPLIT, KEYS, ROWS = 64, 32, 64


@dataclass(frozen=True)
class Shape:
    """A layer; `kind`: bf16, fp32, int8 or fp8, with scales by token, or by head."""

    heads: int
    kv_heads: int
    d: int
    dv: int
    block: int = 16
    kind: str = "bf16"
    by_head: bool = False

    def __str__(self) -> str:
        scales = "-by-head" if self.by_head else ""
        return f"{self.kind}{scales}-{self.heads}x{self.kv_heads}-d{self.d}-dv{self.dv}-block{self.block}"

    @property
    def kv_type(self) -> KvType | None:
        return next((kind for kind in KvType if kind == self.kind), None)


@dataclass
class Sequence:
    """All of a sequence's q [T, H, D], k [T, Hk, D], v [T, Hk, Dv], its blocks, and what has been attended so far."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    blocks: list[int] = field(default_factory=list)
    outputs: list[torch.Tensor] = field(default_factory=list)
    done: int = 0

    @property
    def output(self) -> torch.Tensor:
        return torch.cat(self.outputs)


class Layer:
    """Attends step by step. Every element of the cache that was not written is NaN, or as large as can be."""

    def __init__(self, shape: Shape, *, scale=0.3, softcap=0.0, window=0, chunk=0, sinks=None, slopes=None) -> None:
        self.shape, self.window, self.sinks, self.slopes = shape, window, sinks, slopes
        self.options = {"SCALE": scale, "SOFTCAP": softcap, "WINDOW": window, "CHUNK": chunk}
        dtypes = {"bf16": torch.bfloat16, "fp32": torch.float32, "int8": torch.int8, "fp8": torch.uint8}
        self.dtype = dtypes[shape.kind]
        elements = shape.kv_heads * shape.block * (shape.d + shape.dv) * self.dtype.itemsize
        scales = 0 if shape.kv_type is None or shape.by_head else shape.kv_heads * 2 * shape.block * 4
        self.bytes = elements + scales + 64  # another layer's part between
        self.scales_at = elements if scales else None
        self.pool = torch.full((BLOCKS, self.bytes), 0xFF, dtype=torch.uint8)
        self.free = list(np.random.default_rng(0).permutation(BLOCKS))
        self.head_scales: list[torch.Tensor | None] = [None, None]
        if shape.by_head and shape.kv_type:  # some elements will be too large for them
            step = 3 / LARGEST[shape.kv_type]
            self.head_scales = [torch.linspace(s, 2 * s, shape.kv_heads) for s in (step, 1.5 * step)]

    def sequence(self, tokens: int, seed: int = 0) -> Sequence:
        shape, generator = self.shape, torch.Generator().manual_seed(seed)
        sizes = ((shape.heads, shape.d), (shape.kv_heads, shape.d), (shape.kv_heads, shape.dv))
        q, k, v = (torch.randn(tokens, *size, generator=generator) for size in sizes)
        return Sequence(q, k, v)

    def step(self, chunks: list[tuple[Sequence, int]], padding: int = 0) -> None:
        """The next `count` tokens of each sequence in one step, and `padding` sequences that are none.

        Where all have one token, each split of a context has programs; other steps walk through contexts.
        """
        counts = [count for _, count in chunks] + [1] * padding
        query_start = torch.tensor(np.cumsum([0, *counts]), dtype=torch.int32)
        context = torch.tensor([s.done + count for s, count in chunks] + [0] * padding, dtype=torch.int32)
        table = torch.full((len(counts), BLOCKS), -1, dtype=torch.int32)
        for row, (s, count) in zip(table, chunks, strict=False):
            while len(s.blocks) * self.shape.block < s.done + count:
                s.blocks.append(int(self.free.pop()))
            self._release(s)
            row[: len(s.blocks)] = torch.tensor(s.blocks)
        numbers = [torch.full((count,), i, dtype=torch.int32) for i, (_, count) in enumerate(chunks)]
        token_seq = torch.cat([*numbers, torch.full((padding,), -1, dtype=torch.int32)])
        q, k, v = (
            torch.cat([*(getattr(s, part)[s.done : s.done + count] for s, count in chunks), *[zeros] * padding])
            for part, zeros in (("q", chunks[0][0].q[:1]), ("k", chunks[0][0].k[:1]), ("v", chunks[0][0].v[:1]))
        )
        out = torch.full((sum(counts), self.shape.heads, self.shape.dv), float("nan"))
        self._write(k, v, token_seq, query_start, context, table)
        attend = self._split if max(counts) == 1 else self._walk
        attend(q, out, query_start, context, table)
        for (s, count), start in zip(chunks, query_start.tolist(), strict=False):
            s.outputs.append(out[start : start + count])
            s.done += count

    def _release(self, s: Sequence) -> None:
        """Frees the blocks behind the window, as the runtime does: they are poisoned, and -1 in the table."""
        for index in range(max(0, s.done - self.window + 1) // self.shape.block if self.window else 0):
            if s.blocks[index] >= 0:
                self.pool[s.blocks[index]] = 0xFF
                self.free.insert(0, s.blocks[index])
                s.blocks[index] = -1

    def _cache(self) -> dict:
        token_scales = None if self.scales_at is None else self.pool.view(-1)[self.scales_at :].view(torch.float32)
        key_scales, value_scales = self.head_scales
        return {
            "pool": self.pool.view(-1).view(self.dtype),
            "token_scales": token_scales,
            "key_scales": key_scales,
            "value_scales": value_scales,
            "POOL_BLOCK": self.bytes // self.dtype.itemsize,
            "SCALES_BLOCK": self.bytes // 4,
            "BLOCK_SIZE": self.shape.block,
            "KIND": self.shape.kind if self.shape.kv_type else "float",
            "TABLE_COLUMNS": BLOCKS,
            "D": self.shape.d,
            "DV": self.shape.dv,
            "BLOCK_D": padded(self.shape.d),
            "BLOCK_DV": padded(self.shape.dv),
        }

    def _attend(self) -> dict:
        group = self.shape.heads // self.shape.kv_heads
        tile = {"SPLIT": SPLIT, "KEYS": KEYS, "ROWS": ROWS, "FP32": self.shape.kind == "fp32", "GROUP": group}
        return self._cache() | self.options | tile

    def _write(self, k, v, token_seq, query_start, context, table) -> None:
        strides = {"K_TOKEN": k.stride(0), "K_HEAD": k.stride(1), "V_TOKEN": v.stride(0), "V_HEAD": v.stride(1)}
        step = {"token_seq": token_seq, "query_start": query_start, "context_length": context, "block_table": table}
        heads = {"HEADS": self.shape.kv_heads, "BLOCK_HEADS": padded(self.shape.kv_heads)}
        interpret(write_kernel, (len(k),), k=k, v=v, **step, **self._cache(), **strides, **heads)

    def _walk(self, q, out, query_start, context, table) -> None:
        constants = self._attend()
        tiles = len(q) // (ROWS // constants["GROUP"]) + len(context)
        step = {"query_start": query_start, "context_length": context, "block_table": table}
        strides = {"Q_TOKEN": q.stride(0), "Q_HEAD": q.stride(1), "OUT_TOKEN": out.stride(0), "OUT_HEAD": out.stride(1)}
        grid = (tiles, self.shape.kv_heads)
        interpret(
            walk_kernel,
            grid,
            q=q,
            out=out,
            sinks=self.sinks,
            slopes=self.slopes,
            sequences=len(context),
            **step,
            **constants,
            **strides,
        )

    def _split(self, q, out, query_start, context, table) -> None:
        splits = -(-int(context.max()) // SPLIT)
        shape = (len(context), self.shape.heads, splits)
        tops, totals, outputs = (torch.full((*shape, *end), float("nan")) for end in ((), (), (self.shape.dv,)))
        partial = {"tops": tops, "totals": totals, "outputs": outputs, "HEADS": self.shape.heads, "SPLITS": splits}
        step = {"query_start": query_start, "context_length": context}
        strides = {"Q_TOKEN": q.stride(0), "Q_HEAD": q.stride(1)}
        grid = (len(context), self.shape.kv_heads, splits)
        constants = self._attend()
        interpret(
            split_kernel, grid, q=q, slopes=self.slopes, block_table=table, **partial, **step, **constants, **strides
        )
        ends = {key: constants[key] for key in ("DV", "WINDOW", "CHUNK", "SPLIT", "BLOCK_DV")}
        ends |= {"OUT_TOKEN": out.stride(0), "OUT_HEAD": out.stride(1)}
        grid = (len(context), self.shape.heads)
        interpret(combine_kernel, grid, out=out, sinks=self.sinks, **partial, **step, **ends)

    def held(self, x: torch.Tensor, which: int) -> np.ndarray:
        """Keys (0) or values (1), float64, as the cache holds them."""
        values, scale = x.numpy(), self.head_scales[which]
        if self.shape.kv_type is not None:
            elements, scales = cached(values, self.shape.kv_type, None if scale is None else scale.numpy())
            return elements.astype(np.float64) * scales[..., None]
        return values.astype(np.float32 if self.shape.kind == "fp32" else ml_dtypes.bfloat16).astype(np.float64)

    def assert_right(self, s: Sequence) -> None:
        """Against the reference over keys and values as the cache holds them, and queries as products take them."""
        q = s.q[: s.done].numpy()
        q = (q if self.shape.kind == "fp32" else q.astype(ml_dtypes.bfloat16)).astype(np.float64)
        k, v = self.held(s.k[: s.done], 0), self.held(s.v[: s.done], 1)
        sinks = None if self.sinks is None else self.sinks.double().numpy()
        options = {key.lower(): value for key, value in self.options.items()}
        slopes = None if self.slopes is None else self.slopes.double().numpy()
        expected = attention(q, k, v, sinks, slopes, **options)
        largest = np.abs(v).max()
        np.testing.assert_allclose(s.output, expected, atol=largest * (2e-6 if self.shape.kind == "fp32" else 4e-3))


def padded(size: int) -> int:
    return max(16, 1 << (size - 1).bit_length())


SHAPES = [
    Shape(2, 2, 16, 16),
    Shape(6, 2, 64, 64, 32),
    Shape(5, 1, 80, 96),
    Shape(7, 1, 112, 20, 48),
    Shape(3, 1, 33, 17, 16, "fp32"),
    Shape(6, 2, 64, 64, 32, "int8"),
    Shape(5, 1, 80, 32, 16, "fp8"),
    Shape(4, 2, 33, 20, 64, "int8", by_head=True),
    Shape(3, 1, 256, 64, 32, "fp8", by_head=True),
]
OPTIONS = {
    "plain": {},
    "window": {"window": 37},
    "softcap": {"softcap": 2.0, "scale": 1.0},
    "sinks": {"sinks": True},
    "chunk": {"chunk": 50},
    "slopes": {"slopes": True},
    "all": {"window": 70, "chunk": 100, "softcap": 5.0, "sinks": True, "slopes": True},
}


def options_for(shape: Shape, name: str) -> dict:
    options = dict(OPTIONS[name])
    if options.pop("sinks", False):
        options["sinks"] = torch.linspace(-2, 3, shape.heads)
    if options.pop("slopes", False):
        options["slopes"] = torch.linspace(0.02, 0.5, shape.heads)
    return options


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_prompts_and_decodes_match_the_reference(shape: Shape) -> None:
    layer = Layer(shape)
    sequences = [layer.sequence(70 + i, seed=i) for i in range(2)]
    layer.step([(sequences[0], 68), (sequences[1], 3)])
    layer.step([(sequences[0], 1), (sequences[1], 66)])
    layer.step([(s, 1) for s in sequences])
    for s in sequences:
        layer.assert_right(s)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("shape", [SHAPES[6]], ids=str)
def test_options_match_the_reference(shape: Shape, name: str) -> None:
    layer = Layer(shape, **options_for(shape, name))
    s = layer.sequence(132)
    layer.step([(s, 130)])
    for _ in range(2):
        layer.step([(s, 1)], padding=1)
    layer.assert_right(s)


@pytest.mark.parametrize("name", ["plain", "all"])
@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[6]], ids=str)
def test_the_same_bits_however_a_context_is_cut_and_whoever_is_beside(shape: Shape, name: str) -> None:
    options = options_for(shape, name)
    alone = Layer(shape, **options)
    whole = alone.sequence(131, seed=3)
    alone.step([(whole, 131)])
    shared = Layer(shape, **options)
    cut, other = shared.sequence(131, seed=3), shared.sequence(90, seed=4)
    shared.step([(other, 19), (cut, 1)])
    shared.step([(cut, 60), (other, 1)])
    shared.step([(cut, 67)])
    for _ in range(3):
        shared.step([(other, 1), (cut, 1)], padding=1)
    assert torch.equal(cut.output, whole.output)


@pytest.mark.parametrize("shape", [s for s in SHAPES if s.kv_type], ids=str)
def test_the_cache_holds_what_the_reference_makes_of_keys_and_values(shape: Shape) -> None:
    layer = Layer(shape)
    s = layer.sequence(5)
    s.k[2], s.v[3] = 0, s.v[3] * 1e-30
    layer.step([(s, 5)])
    block = layer.pool[s.blocks[0]]
    elements = shape.block * (shape.d + shape.dv)
    dtype = np.int8 if shape.kind == "int8" else ml_dtypes.float8_e4m3fn
    for head in range(shape.kv_heads):
        part = block[head * elements : (head + 1) * elements].numpy().view(dtype).astype(np.float32)
        scales = None if layer.scales_at is None else block[layer.scales_at :][: 8 * shape.kv_heads * shape.block]
        for which, (x, start, width) in enumerate(((s.k, 0, shape.d), (s.v, shape.block * shape.d, shape.dv))):
            of_head, kind = layer.head_scales[which], KvType(shape.kind)
            expected, expected_scales = cached(x.numpy(), kind, None if of_head is None else of_head.numpy())
            found = part[start : start + 5 * width].reshape(5, width)
            np.testing.assert_array_equal(found, expected[:, head])
            if scales is not None:
                rows = scales.view(torch.float32).reshape(shape.kv_heads, 2, shape.block)
                np.testing.assert_array_equal(rows[head, which, :5], expected_scales[:, head])
