"""The convolution against float64, and the same bits whole, in chunks and in company, whatever the threads."""

import ctypes
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from enginesmith.plugins.causal_conv.reference import causal_conv1d

SHAPES = [(1, 2), (7, 3), (64, 4), (300, 4)]
CASE = """
  if (c == {c} && k == {k}) {{
    const Rows from{{x, {c} + 3}};
    if (silu) causal_conv1d<{c}, {k}, true>(pool, from, weight, bias, {{y, {c}}}, states, step);
    else causal_conv1d<{c}, {k}, false>(pool, from, weight, bias, {{y, {c}}}, states, step);
  }}
"""
DRIVER = """
#include "causal_conv/cpu/causal_conv.h"
using namespace es;
extern "C" void run(int threads, int c, int k, bool silu, const float* x, const float* weight, const float* bias,
                    float* y, float* state, int64_t stride, int num_seqs, const int32_t* query_start,
                    const int32_t* slots) {{
  ThreadPool pool(threads);
  const StateLayer states{{state, stride}};
  const StateStep step{{num_seqs, query_start, slots}};
{cases}
}}
"""
Step = Sequence[tuple[int, np.ndarray]]  # slots, and the tokens of their sequences


@pytest.fixture(scope="module")
def conv(compile_each: Callable[[str], ctypes.CDLL]) -> Callable[..., list[np.ndarray]]:
    """conv(step, states, weight, bias, silu, threads) -> y of each sequence; states [slots, (K - 1) * C] move on."""
    library = compile_each(DRIVER.format(cases="".join(CASE.format(c=c, k=k) for c, k in SHAPES)))

    def run(step: Step, states: np.ndarray, weight: np.ndarray, bias=None, silu=False, threads=1) -> list[np.ndarray]:
        x = np.concatenate([tokens for _, tokens in step])
        padded = np.concatenate([x, np.full((len(x), 3), np.nan, np.float32)], axis=1)
        start = np.cumsum([0, *(len(tokens) for _, tokens in step)]).astype(np.int32)
        slots, y = np.array([slot for slot, _ in step], np.int32), np.full_like(x, np.nan)
        arrays = (padded, weight, bias, y, states)
        pointers = [ctypes.c_void_p(None if a is None else a.ctypes.data) for a in arrays]
        steps = (ctypes.c_void_p(start.ctypes.data), ctypes.c_void_p(slots.ctypes.data))
        stride = ctypes.c_int64(states.shape[1])
        library.run(threads, weight.shape[1], len(weight), silu, *pointers, stride, len(step), *steps)
        return np.split(y, start[1:-1])

    return run


@pytest.mark.parametrize(("channels", "width"), SHAPES)
@pytest.mark.parametrize("silu", [False, True])
def test_sequences_whole_in_chunks_and_in_company(conv: Callable[..., list[np.ndarray]], channels, width, silu):
    rng = np.random.default_rng(channels)
    weight, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((width, channels), channels))
    bias = bias if silu else None
    lengths = (9, 1, 5)
    sequences = [rng.standard_normal((length, channels)).astype(np.float32) for length in lengths]

    def fresh() -> np.ndarray:
        return np.zeros((4, (width - 1) * channels), np.float32)

    whole = [conv([(2, x)], fresh(), weight, bias, silu)[0] for x in sequences]
    for x, y in zip(sequences, whole, strict=True):
        exact = causal_conv1d(x.astype(np.float64), weight, bias, silu=silu)
        np.testing.assert_allclose(y, exact, rtol=1e-5, atol=1e-5)
    states = fresh()
    chunks = [conv([(1, part)], states, weight, bias, silu)[0] for part in np.split(sequences[0], [1, 2, 6])]
    assert np.array_equal(np.concatenate(chunks), whole[0])
    states = fresh()
    slots = (3, 0, 2)
    first = [(slot, x[:4]) for slot, x in zip(slots, sequences, strict=True)]
    rest = [(slot, x[4:]) for slot, x in zip(slots, sequences, strict=True) if len(x) > 4]
    parts = conv(first, states, weight, bias, silu, threads=3), conv(rest, states, weight, bias, silu, threads=3)
    company = [np.concatenate([parts[0][0], parts[1][0]]), parts[0][1], np.concatenate([parts[0][2], parts[1][1]])]
    assert all(np.array_equal(a, b) for a, b in zip(company, whole, strict=True))
