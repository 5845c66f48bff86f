"""The rotary kernel against NumPy, for every style, partial rotation and odd sizes."""

import ctypes

import numpy as np
import pytest

from enginesmith.errors import UnsupportedModelError
from enginesmith.plugins.discovery import operation
from enginesmith.plugins.rotary.reference import RotaryStyle, rotary

CASES = [  # style, H, D, R, cos_stride
    (style, h, d, r, stride)
    for style in RotaryStyle
    for h, d, r, stride in [(3, 64, 64, 1), (2, 80, 32, 1), (1, 10, 6, 2), (5, 34, 34, 1), (2, 64, 64, 2)]
]
CPP_STYLE = {RotaryStyle.NEOX: "kNeox", RotaryStyle.GPTJ: "kGptj", RotaryStyle.GPTJ_TO_NEOX: "kGptjToNeox"}
DRIVER = """
#include "rotary/cpu/rotary.h"
using namespace es;
extern "C" void run(int which, int threads, const float* x, const float* cos, const float* sin, int width, float* y,
                    int64_t T) {{
  ThreadPool pool(threads);
  switch (which) {{
{cases}
  }}
}}
"""
CASE = (
    "    case {i}: return rotary<RotaryStyle::{style}, {h}, {d}, {r}, {stride}>"
    "(pool, {{x, {h} * {d}, {d}}}, {{cos, width}}, {{sin, width}}, {{y, {h} * {d}, {d}}}, T);\n"
)


@pytest.fixture(scope="module")
def library(compile_each):
    cases = (
        CASE.format(i=i, style=CPP_STYLE[style], h=h, d=d, r=r, stride=stride)
        for i, (style, h, d, r, stride) in enumerate(CASES)
    )
    return compile_each(DRIVER.format(cases="".join(cases)))


def call(library, which, x, cos, sin, y, threads=1):
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x, cos, sin)]
    library.run(which, threads, *pointers, cos.shape[1], ctypes.c_void_p(y.ctypes.data), ctypes.c_int64(len(x)))


@pytest.mark.parametrize("which", range(len(CASES)), ids=lambda i: "-".join(map(str, CASES[i])))
def test_matches_the_reference_and_works_in_place(library, which):
    style, h, d, r, stride = CASES[which]
    rng = np.random.default_rng(which)
    x = rng.standard_normal((500, h, d)).astype(np.float32)
    angles = rng.uniform(-3, 3, (500, r // 2 * stride + 1))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    y = np.full_like(x, np.nan)
    call(library, which, x, cos, sin, y)
    wide = [a.astype(np.float64)[:, None] for a in (cos, sin)]
    expected = rotary(x.astype(np.float64), *wide, style=style, rotary_dim=r, cos_stride=stride)
    np.testing.assert_allclose(y, expected, atol=1e-6)
    np.testing.assert_array_equal(y[..., r:], x[..., r:])
    in_place = x.copy()
    call(library, which, in_place, cos, sin, in_place, threads=3)
    np.testing.assert_array_equal(in_place, y)


def test_schema():
    op = operation("RotaryEmbedding")
    attributes = op.parse({"style": b"gptj", "rotary_dim": 32})
    assert attributes.style is RotaryStyle.GPTJ
    assert (attributes.rotary_dim, attributes.cos_stride, attributes.heads_axis) == (32, 1, 1)
    angles = (1, "T", 32)
    assert op.infer([(1, 9, "T", 64), angles, angles], attributes) == ((1, 9, "T", 64),)
    with pytest.raises(ValueError, match="33 elements"):
        op.infer([(1, 9, "T", 64), angles, angles], op.parse({"style": "neox", "rotary_dim": 33}))
    with pytest.raises(ValueError, match="angles"):
        op.infer([(1, 9, "T", 64), (1, "T", 15), (1, "T", 15)], attributes)
    with pytest.raises(UnsupportedModelError, match="twist"):
        op.parse({"style": "twist", "rotary_dim": 32})
    with pytest.raises(UnsupportedModelError, match="rotary_dim"):
        op.parse({"style": "neox"})


def test_reference_computes_the_operation_for_both_layouts():
    op, rng = operation("RotaryEmbedding"), np.random.default_rng(0)
    x = rng.standard_normal((1, 2, 5, 8))
    angles = rng.uniform(-3, 3, (1, 5, 8))
    first = op.reference(x, np.cos(angles), np.sin(angles), attributes=op.parse({"style": "neox", "rotary_dim": 8}))
    turned = op.parse({"style": "neox", "rotary_dim": 8, "heads_axis": 2})
    second = op.reference(x.swapaxes(1, 2), np.cos(angles), np.sin(angles), attributes=turned)
    assert isinstance(first, np.ndarray)
    assert isinstance(second, np.ndarray)
    np.testing.assert_array_equal(first, second.swapaxes(1, 2))
    np.testing.assert_allclose(np.sum(first**2, -1), np.sum(x**2, -1))
