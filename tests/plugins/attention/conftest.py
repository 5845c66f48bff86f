"""A small engine around the attention kernel: a paged cache with scattered blocks, fed step by step."""

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from enginesmith.plugins.attention.reference import LARGEST
from enginesmith.quantization.scheme import KvType

DRIVER = """
#include "attention/cpu/paged_attention.h"
using Kernel = es::PagedAttention<{cpp_element}, {heads}, {kv_heads}, {d}, {dv}, {block}>;
extern "C" int64_t scratch_floats(int threads, int tokens) {{ return Kernel::scratch_floats(threads, tokens); }}
extern "C" int64_t block_bytes() {{ return Kernel::block_bytes; }}
extern "C" void run(int threads, int tokens, int seqs, int max_blocks, const float* q, const float* k, const float* v,
                    float* out, uint8_t* cache, int64_t block_stride, const float* key_scales,
                    const float* value_scales, const int32_t* query_start, const int32_t* context_length,
                    const int32_t* block_table, float scale, float softcap, int window, int chunk,
                    const float* sinks, const float* slopes, float* scratch) {{
  es::ThreadPool pool(threads);
  const es::AttentionStep step{{tokens, seqs, max_blocks, query_start, context_length, block_table}};
  Kernel::run(pool, {{q, {heads} * {d}, {d}}}, {{k, {kv_heads} * {d}, {d}}}, {{v, {kv_heads} * {dv}, {dv}}},
              {{out, {heads} * {dv}, {dv}}}, {{cache, block_stride, key_scales, value_scales}}, step,
              {{scale, softcap, window, chunk, sinks, slopes}}, scratch);
}}
"""


@dataclass(frozen=True)
class Shape:
    element: str
    heads: int
    kv_heads: int
    d: int
    dv: int
    block: int

    @property
    def cpp_element(self) -> str:
        """ "PerToken<Int8>" and the like as C++ has it."""
        return re.sub(r"\b(?=[A-Z])", "es::", self.element)

    @property
    def kind(self) -> KvType | None:
        """What a quantized cache holds."""
        return next((kind for kind in KvType if kind in self.element.lower()), None)

    def __str__(self) -> str:
        return f"{self.element.lower()}-{self.heads}x{self.kv_heads}-d{self.d}-dv{self.dv}-block{self.block}"


@dataclass(frozen=True)
class Options:
    scale: float = 0.3
    softcap: float = 0.0
    window: int = 0
    chunk: int = 0
    sinks: np.ndarray | None = None
    slopes: np.ndarray | None = None


@dataclass
class Sequence:
    """The whole of a sequence's q [T, H, D], k [T, Hk, D], v [T, Hk, Dv], and how much of it has been attended."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    done: int = 0
    blocks: list[int] = field(default_factory=list)
    outputs: list[np.ndarray] = field(default_factory=list)

    @property
    def output(self) -> np.ndarray:
        return np.concatenate(self.outputs)


class AttentionRunner:
    """Attends step by step. Every byte of the cache and of the scratch that was not written is NaN."""

    def __init__(self, library: ctypes.CDLL, shape: Shape, options: Options, num_blocks: int = 96) -> None:
        for name in ("scratch_floats", "block_bytes"):
            getattr(library, name).restype = ctypes.c_int64
        self.library, self.shape, self.options = library, shape, options
        self.cache = np.full((num_blocks, library.block_bytes() + 64), 0xFF, np.uint8)  # another layer's part between
        self.free = list(np.random.default_rng(0).permutation(num_blocks))
        self.head_scales: list[np.ndarray | None] = [None, None]
        if (
            shape.kind is not None and "PerHead" in shape.element
        ):  # some elements of a normal distribution will be too large for them
            step = 3 / LARGEST[shape.kind]
            self.head_scales = [np.linspace(s, 2 * s, shape.kv_heads, dtype=np.float32) for s in (step, 1.5 * step)]

    def step(self, chunks: list[tuple[Sequence, int]], threads: int = 2) -> None:
        """The next `count` tokens of each sequence, all in one call."""
        shape, block = self.shape, self.shape.block
        counts = [count for _, count in chunks]
        query_start = np.cumsum([0, *counts]).astype(np.int32)
        context = np.array([s.done + count for s, count in chunks], np.int32)
        for (s, _), length in zip(chunks, context, strict=True):
            while len(s.blocks) * block < length:
                s.blocks.append(int(self.free.pop()))
        self._release(chunks)
        table = np.full((len(chunks), max(len(s.blocks) for s, _ in chunks)), -1, np.int32)
        for row, (s, _) in zip(table, chunks, strict=True):
            row[: len(s.blocks)] = s.blocks
        parts = [
            np.concatenate([getattr(s, name)[s.done : s.done + count] for s, count in chunks])
            for name in ("q", "k", "v")
        ]
        out = np.full((sum(counts), shape.heads, shape.dv), np.nan, np.float32)
        scratch = np.full(self.library.scratch_floats(threads, sum(counts)), np.nan, np.float32)
        self._call(threads, parts, out, query_start, context, table, scratch)
        for (s, count), start in zip(chunks, query_start, strict=False):
            s.outputs.append(out[start : start + count])
            s.done += count

    def _release(self, chunks: list[tuple[Sequence, int]]) -> None:
        """Frees the blocks behind the window, as the runtime does: they are poisoned, and -1 in the table."""
        window = min(filter(None, (self.options.window, self.options.chunk)), default=0)
        if not window:
            return
        for s, _ in chunks:
            for index in range(max(0, s.done - window + 1) // self.shape.block):
                if s.blocks[index] >= 0:
                    self.cache[s.blocks[index]] = 0xFF
                    self.free.insert(0, s.blocks[index])
                    s.blocks[index] = -1

    def _call(self, threads: int, parts: list[np.ndarray], out: np.ndarray, *arrays: np.ndarray) -> None:
        query_start, context, table, scratch = arrays
        options = self.options
        pointers = [ctypes.c_void_p(x.ctypes.data) for x in (*parts, out, self.cache)]
        self.library.run(
            threads, len(out), len(context), table.shape[1], *pointers,
            ctypes.c_int64(self.cache.shape[1]),
            *(ctypes.c_void_p(None if x is None else x.ctypes.data) for x in self.head_scales),
            *(ctypes.c_void_p(x.ctypes.data) for x in (query_start, context, table)),
            ctypes.c_float(options.scale), ctypes.c_float(options.softcap), options.window, options.chunk,
            *(ctypes.c_void_p(None if x is None else x.ctypes.data) for x in (options.sinks, options.slopes)),
            ctypes.c_void_p(scratch.ctypes.data),
        )  # fmt: skip


@pytest.fixture(scope="session")
def attention_library(
    compile_kernel: Callable[..., ctypes.CDLL], compile_sixteen_lanes: Callable[[str], ctypes.CDLL]
) -> Callable[[Shape, bool], ctypes.CDLL]:
    def build(shape: Shape, wide: bool) -> ctypes.CDLL:
        return (compile_sixteen_lanes if wide else compile_kernel)(
            DRIVER.format(cpp_element=shape.cpp_element, **vars(shape))
        )

    return build


@pytest.fixture(scope="session")
def make_runner(attention_library: Callable[[Shape, bool], ctypes.CDLL]) -> Callable[..., AttentionRunner]:
    """make_runner(shape, wide=False, **options) -> a runner with an empty cache; wide: with vectors of 16 lanes."""

    def make(shape: tuple, wide: bool = False, **options: Any) -> AttentionRunner:
        described = Shape(*shape)
        return AttentionRunner(attention_library(described, wide), described, Options(**options))

    return make


@pytest.fixture(scope="session")
def make_sequence() -> Callable[..., Sequence]:
    """make_sequence(runner, tokens, seed) -> random q, k and v of that many tokens."""

    def make(runner: AttentionRunner, tokens: int, seed: int = 0) -> Sequence:
        rng, shape = np.random.default_rng(seed), runner.shape
        sizes = ((shape.heads, shape.d), (shape.kv_heads, shape.d), (shape.kv_heads, shape.dv))
        q, k, v = (rng.standard_normal((tokens, *size)).astype(np.float32) for size in sizes)
        return Sequence(q, k, v)

    return make
