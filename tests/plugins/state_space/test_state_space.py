"""The scan of Mamba-2 against float64, and the same bits whole, in chunks and in company, whatever the threads."""

import ctypes
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from enginesmith.plugins.state_space.reference import state_space_scan

SHAPES = [(4, 64, 2, 24), (3, 5, 1, 7), (2, 6, 2, 16)]  # heads, their width, groups, state
CASE = """
  if (h == {h} && p == {p}) {{
    const StateSpaceInputs in{{{{x, {h} * {p}, {p}}}, {{b, {g} * {n}, {n}}}, {{c, {g} * {n}, {n}}},
                              {{y, {h} * {p}, {p}}}, {{dt, {h}}}, a, d, dt_bias, softplus, dt_min, dt_max}};
    StateSpace<{h}, {p}, {g}, {n}>::run(pool, in, {{state, {h} * {p} * {n}}}, {{num_seqs, query_start, slots}});
  }}
"""
DRIVER = """
#include "state_space/cpu/state_space.h"
using namespace es;
extern "C" void run(int threads, int h, int p, const float* x, const float* dt, const float* a, const float* b,
                    const float* c, const float* d, const float* dt_bias, float* y, float* state, bool softplus,
                    float dt_min, float dt_max, int num_seqs, const int32_t* query_start, const int32_t* slots) {{
  ThreadPool pool(threads);
{cases}
}}
"""


class Model:
    """Parameters of heads, and tokens for them: x, dt, b and c."""

    def __init__(self, shape: tuple[int, int, int, int], *, plain: bool) -> None:
        self.shape = (heads, width, _, size) = shape
        self._rng = rng = np.random.default_rng(heads)
        self.a = -np.exp(rng.standard_normal(heads)).astype(np.float32)
        self.d, self.dt_bias = (None if plain else self._normal(heads) for _ in range(2))
        self.softplus, self.limits = not plain, (-math.inf, math.inf) if plain else (0.3, 1.2)
        self.state_floats = heads * width * size

    def _normal(self, *shape: int) -> np.ndarray:
        return self._rng.standard_normal(shape).astype(np.float32)

    def tokens(self, count: int) -> list[np.ndarray]:
        heads, width, groups, size = self.shape
        dt = self._normal(count, heads)
        dt = dt * 8 if self.softplus else abs(dt)
        return [
            self._normal(count, heads, width),
            dt,
            self._normal(count, groups, size),
            self._normal(count, groups, size),
        ]

    def exact(self, tokens: Sequence[np.ndarray]) -> np.ndarray:
        x, dt, b, c = (each.astype(np.float64) for each in tokens)
        return state_space_scan(
            x, dt, self.a, b, c, self.d, self.dt_bias, softplus=self.softplus, limits=self.limits
        )  # fmt: skip


@pytest.fixture(scope="module")
def scan(compile_each: Callable[[str], ctypes.CDLL]) -> Callable[..., list[np.ndarray]]:
    """scan(model, [(slot, tokens), ...], states, threads) -> y of each sequence; states [slots, state] move on."""
    cases = (CASE.format(h=h, p=p, g=g, n=n) for h, p, g, n in SHAPES)
    library = compile_each(DRIVER.format(cases="".join(cases)))

    def run(model: Model, step: list[tuple[int, list[np.ndarray]]], states: np.ndarray, threads: int = 1):
        x, dt, b, c = (np.concatenate(parts) for parts in zip(*(tokens for _, tokens in step), strict=True))
        start = np.cumsum([0, *(len(tokens[0]) for _, tokens in step)]).astype(np.int32)
        slots, y = np.array([slot for slot, _ in step], np.int32), np.full_like(x, np.nan)
        arrays = (x, dt, model.a, b, c, model.d, model.dt_bias, y, states)
        pointers = [ctypes.c_void_p(None if each is None else each.ctypes.data) for each in arrays]
        limits = [ctypes.c_float(limit) for limit in model.limits]
        places = [ctypes.c_void_p(each.ctypes.data) for each in (start, slots)]
        heads, width, *_ = model.shape
        library.run(threads, heads, width, *pointers, model.softplus, *limits, len(step), *places)
        return np.split(y, start[1:-1])

    return run


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("plain", [False, True])
def test_sequences_whole_in_chunks_and_in_company(scan: Callable[..., list[np.ndarray]], shape, plain):
    model = Model(shape, plain=plain)
    sequences = [model.tokens(count) for count in (9, 1, 5)]

    def fresh() -> np.ndarray:
        return np.zeros((4, model.state_floats), np.float32)

    whole = [scan(model, [(2, tokens)], fresh())[0] for tokens in sequences]
    for tokens, y in zip(sequences, whole, strict=True):
        np.testing.assert_allclose(y, model.exact(tokens), rtol=2e-5, atol=2e-5 * np.abs(y).max())
    states, long = fresh(), sequences[0]
    chunks = [scan(model, [(1, [each[i:j] for each in long])], states)[0] for i, j in ((0, 1), (1, 2), (2, 6), (6, 9))]
    assert np.array_equal(np.concatenate(chunks), whole[0])
    states = fresh()
    first = [(slot, [each[:4] for each in tokens]) for slot, tokens in zip((3, 0, 2), sequences, strict=True)]
    begun = scan(model, first, states, threads=3)
    ended = scan(
        model, [(slot, [each[4:] for each in sequences[i]]) for slot, i in ((3, 0), (2, 2))], states, threads=3
    )
    company = [np.concatenate([begun[0], ended[0]]), begun[1], np.concatenate([begun[2], ended[1]])]
    assert all(np.array_equal(a, b) for a, b in zip(company, whole, strict=True))
