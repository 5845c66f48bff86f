"""The norm kernels against float64, and the same bits whatever the number of rows and threads."""

import ctypes

import numpy as np
import pytest

from enginesmith.plugins.discovery import operation
from enginesmith.plugins.norm import reference

SHAPES = [(1, 1), (1, 7), (1, 8), (3, 64), (2, 65), (1, 576), (1, 1000)]

CASE = """
  if (h == {h} && d == {d}) {{
    const Heads heads{{x, {h} * {d} + 3, {d}}};
    const MutHeads y_heads{{y, {h} * {d}, {d}}};
    const Rows row{{x, {h} * {d} + 3}}, other{{skip, {h} * {d}}};
    if (kind == 0) rms_norm<{h}, {d}>(pool, heads, weight, epsilon, y_heads, T);
    if (kind == 1) layer_norm<{h}, {d}>(pool, heads, weight, bias, epsilon, y_heads, T);
    if (kind == 2) skip_rms_norm<{h} * {d}>(pool, row, other, weight, epsilon, {{y, {h} * {d}}}, {{sum, {h} * {d}}}, T);
    if (kind == 3)
      skip_layer_norm<{h} * {d}>(pool, row, other, weight, bias, epsilon, {{y, {h} * {d}}}, {{sum, {h} * {d}}}, T);
  }}
"""
DRIVER = """
#include "norm/cpu/norm.h"
using namespace es;
extern "C" void run(int kind, int threads, int h, int d, const float* x, const float* skip, const float* weight,
                    const float* bias, float epsilon, float* y, float* sum, int64_t T) {{
  ThreadPool pool(threads);
{cases}
}}
"""
RMS, LAYER, SKIP_RMS, SKIP_LAYER = range(4)
EPSILON = 1e-5


@pytest.fixture(scope="module")
def norm(compile_each):
    """norm(kind, h, d, x, skip, weight, bias, threads) -> y, sum; x [T, H * D + 3], its last three columns unused."""
    library = compile_each(DRIVER.format(cases="".join(CASE.format(h=h, d=d) for h, d in SHAPES)))

    def run(kind, h, d, x, skip=None, weight=None, bias=None, threads=1):
        y, total = (np.full((len(x), h * d), np.nan, np.float32) for _ in range(2))
        pointers = [ctypes.c_void_p(None if a is None else a.ctypes.data) for a in (x, skip, weight, bias)]
        outputs = [ctypes.c_void_p(a.ctypes.data) for a in (y, total)]
        library.run(
            kind, threads, h, d, *pointers, ctypes.c_float(EPSILON), *outputs, ctypes.c_int64(len(x))
        )  # fmt: skip
        return y, total

    return run


def inputs(h, d, tokens, width, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((tokens, h * d + 3)).astype(np.float32) * 3 + 1
    x[:, h * d :] = np.nan
    skip = rng.standard_normal((tokens, h * d)).astype(np.float32)
    weight, bias = (rng.standard_normal(width).astype(np.float32) for _ in range(2))
    return x, skip, weight, bias


@pytest.mark.parametrize("with_weight", [True, False])
@pytest.mark.parametrize(("h", "d"), SHAPES)
def test_norm_of_heads(norm, h, d, with_weight):
    x, _, weight, bias = inputs(h, d, 5, d)
    weight, bias = (weight, bias) if with_weight else (None, None)
    heads = x[:, : h * d].reshape(5, h, d).astype(np.float64)
    y, _ = norm(RMS, h, d, x, weight=weight)
    np.testing.assert_allclose(
        y.reshape(5, h, d), reference.rms_norm(heads, weight, epsilon=EPSILON), rtol=3e-6, atol=1e-6
    )
    y, _ = norm(LAYER, h, d, x, weight=weight, bias=bias)
    expected = reference.layer_norm(heads, weight, bias, epsilon=EPSILON)
    np.testing.assert_allclose(y.reshape(5, h, d), expected, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize(("h", "d"), SHAPES)
def test_norm_after_a_residual(norm, h, d):
    x, skip, weight, bias = inputs(h, d, 5, h * d)
    row = x[:, : h * d]
    y, total = norm(SKIP_RMS, h, d, x, skip, weight)
    np.testing.assert_array_equal(total, row + skip)
    np.testing.assert_allclose(
        y, reference.rms_norm(total.astype(np.float64), weight, epsilon=EPSILON), rtol=3e-6, atol=1e-6
    )
    y, total = norm(SKIP_LAYER, h, d, x, skip, weight, bias)
    np.testing.assert_array_equal(total, row + skip)
    expected = reference.layer_norm(total.astype(np.float64), weight, bias, epsilon=EPSILON)
    np.testing.assert_allclose(y, expected, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("kind", range(4))
def test_a_row_does_not_depend_on_the_others(norm, kind):
    x, skip, weight, bias = inputs(1, 1000, 200, 1000)
    whole, _ = norm(kind, 1, 1000, x, skip, weight, bias, threads=1)
    threaded, _ = norm(kind, 1, 1000, x, skip, weight, bias, threads=3)
    np.testing.assert_array_equal(threaded, whole)
    for t in (0, 17, 199):
        one, _ = norm(kind, 1, 1000, x[t:].copy()[:1], skip[t : t + 1].copy(), weight, bias)
        np.testing.assert_array_equal(one[0], whole[t])


def test_layer_norm_keeps_its_accuracy_far_from_zero(norm):
    """A variance as E[x^2] - E[x]^2 would lose every digit here."""
    x = np.random.default_rng(0).standard_normal((3, 1003)).astype(np.float32) + 3000
    y, _ = norm(LAYER, 1, 1000, x)
    expected = reference.layer_norm(x[:, :1000].astype(np.float64), epsilon=EPSILON)
    np.testing.assert_allclose(y, expected, atol=1e-3)


def test_schema_refuses_shapes_that_do_not_fit():
    op = operation("SkipRMSNorm")
    attributes = op.parse({"epsilon": 1e-5})
    assert op.infer([(1, "T", 8), (1, "T", 8), (8,)], attributes) == ((1, "T", 8), (1, "T", 8))
    with pytest.raises(ValueError, match="residual"):
        op.infer([(1, "T", 8), (1, "T", 9), None], attributes)
    with pytest.raises(ValueError, match="weight"):
        op.infer([(1, "T", 8), (1, "T", 8), (9,)], attributes)
