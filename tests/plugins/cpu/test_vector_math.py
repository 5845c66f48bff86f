"""Elementary functions on vectors: accuracy against float64, special values, and scalars with the lanes' bits."""

import ctypes
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

FUNCTIONS = ("exp", "log", "tanh", "erf", "sigmoid", "silu", "gelu", "gelu_tanh", "quick_gelu", "relu", "relu2")
DRIVER = (
    '#include "cpu/simd.h"\nusing namespace es;\nextern "C" {\n'
    + "".join(
        f"void of_{f}(const float* x, float* y, int64_t n) {{\n"
        f"  map(x, y, n, [](VF v) {{ return es::{f}(v); }});\n"
        "}\n"
        f"void of_{f}_scalar(const float* x, float* y, int64_t n) {{\n"
        f"  for (int64_t i = 0; i < n; ++i) y[i] = {f}f_(x[i]);\n"
        "}\n"
        for f in FUNCTIONS
    )
    + """
void of_exp_nonpositive(const float* x, float* y, int64_t n) {
  map(x, y, n, [](VF v) { return es::exp_nonpositive(v); });
}
void of_to_bf16(const float* x, uint16_t* y, int64_t n) {
  int64_t i = 0;
  for (; i + VF::kLanes <= n; i += VF::kLanes) VF::load(x + i).store_bf16(y + i);
  VF::load(x + i, n - i).store_bf16(y + i, n - i);
}
void of_to_bf16_scalar(const float* x, uint16_t* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = float_to_bf16(x[i]);
}
void of_from_bf16(const uint16_t* x, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + VF::kLanes <= n; i += VF::kLanes) VF::load_bf16(x + i).store(y + i);
  VF::load_bf16(x + i, n - i).store(y + i, n - i);
}
void of_from_fp16(const uint16_t* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += VF::kLanes) VF::load_fp16(x + i).store(y + i);
}
float sum_lanes(const float* x) { return reduce_add(VF::load(x)); }
float max_lanes(const float* x) { return reduce_max(VF::load(x)); }
int lanes() { return VF::kLanes; }
}
"""
)


@pytest.fixture(scope="module")
def library(compile_each):
    library = compile_each(DRIVER)
    library.sum_lanes.restype = library.max_lanes.restype = ctypes.c_float
    return library


def call(library, name, x, dtype: Any = np.float32) -> np.ndarray:
    y = np.zeros(len(x) + 1, dtype)
    y[-1] = 77
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x, y)]
    getattr(library, f"of_{name}")(*pointers, ctypes.c_int64(len(x)))
    assert y[-1] == 77, "wrote past the end"
    return y[:-1]


def everywhere(f):
    return lambda x: np.array([f(float(v)) for v in x])


SIGMOID = everywhere(lambda v: 1 / (1 + math.exp(-v)) if v > -700 else 0.0)
EXACT = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "erf": everywhere(math.erf),
    "sigmoid": SIGMOID,
    "silu": lambda x: x * SIGMOID(x),
    "quick_gelu": lambda x: x * SIGMOID(1.702 * x),
    "gelu": lambda x: x * 0.5 * everywhere(math.erfc)(-x / math.sqrt(2)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}
# The range tested, and the error allowed: in units in the last place, then absolute.
BARS = {
    "exp": (-87, 88.7, 2, 0),
    "log": (1e-30, 1e30, 2, 0),
    "tanh": (-12, 12, 3, 0),
    "erf": (-5, 5, 3, 0),
    "sigmoid": (-80, 80, 4, 0),
    "silu": (-80, 80, 4, 0),
    "quick_gelu": (-20, 50, 40, 0),  # 1.702 x is rounded before the exponential: up to 32 units more
    "gelu": (-10, 10, 4, 4e-7),
    "gelu_tanh": (-10, 10, 4, 1e-6),
}


def spread(low, high):
    """Many float32 values: uniform, and by magnitude around zero."""
    rng = np.random.default_rng(0)
    if low > 0:
        return np.exp(rng.uniform(math.log(low), math.log(high), 20011)).astype(np.float32)
    small = np.exp(rng.uniform(-20, math.log(high), 20011)) * rng.choice([-1, 1], 20011)
    return np.clip(np.concatenate([rng.uniform(low, high, 20011), small]), low, high).astype(np.float32)


@pytest.mark.parametrize("name", EXACT)
def test_accuracy(library, name):
    low, high, units, absolute = BARS[name]
    x = spread(low, high)
    y, exact = call(library, name, x), EXACT[name](x.astype(np.float64))
    unit = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    excess = np.abs(y - exact) - absolute
    worst = np.argmax(excess / unit)
    assert excess[worst] <= units * unit[worst], f"{name}({x[worst]}) = {y[worst]}, exactly {exact[worst]}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_scalar_and_tail_have_the_bits_of_a_lane(library, name):
    x = np.abs(spread(-20, 20)) if name == "log" else spread(-20, 20)
    whole = call(library, name, x)
    np.testing.assert_array_equal(call(library, f"{name}_scalar", x), whole)
    for n in range(1, 18):
        np.testing.assert_array_equal(call(library, name, x[:n].copy()), whole[:n])


@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("exp", {-np.inf: 0, np.inf: np.inf, 0.0: 1, 89.0: np.inf, -104.5: 0, -100.0: math.exp(-100)}),
        ("exp_nonpositive", {-np.inf: 0, 0.0: 1, -88.0: 0, -87.0: math.exp(-87)}),
        ("log", {0.0: -np.inf, np.inf: np.inf, -1.0: np.nan, 1e-40: math.log(1e-40), 1.0: 0}),
        ("tanh", {-np.inf: -1, np.inf: 1, 0.0: 0}),
        ("erf", {-np.inf: -1, np.inf: 1, 0.0: 0, 30.0: 1}),
        ("sigmoid", {-np.inf: 0, np.inf: 1, 0.0: 0.5}),
        ("silu", {np.inf: np.inf, -1000.0: 0, 0.0: 0}),
        ("gelu", {np.inf: np.inf, -1000.0: 0, 0.0: 0}),
        ("gelu_tanh", {1e30: 1e30, -1e30: 0, 0.0: 0}),
        ("relu", {np.inf: np.inf, -np.inf: 0, -3.0: 0, 2.0: 2}),
        ("relu2", {-3.0: 0, 3.0: 9}),
    ],
)
def test_special_values(library, name, pairs):
    y = call(library, name, np.array([*pairs, np.nan], np.float32))
    np.testing.assert_allclose(y[:-1], np.array(list(pairs.values())).astype(np.float32), rtol=1e-6, atol=1e-44)
    assert np.isnan(y[-1]), f"{name}(NaN) must be NaN"


def test_bf16_rounds_to_nearest_even(library):
    bits = np.random.default_rng(0).integers(0, 2**32, 100003, dtype=np.uint64).astype(np.uint32)
    bits[:6] = 0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x7F800001, 0xFFFFFFFF, 0x00000001  # ties, overflow, NaN, subnormal
    x = bits.view(np.float32)
    y = call(library, "to_bf16", x, np.uint16)
    np.testing.assert_array_equal(call(library, "to_bf16_scalar", x, np.uint16), y)
    with np.errstate(invalid="ignore"):
        expected = x.astype(ml_dtypes.bfloat16)
    nan = np.isnan(x)
    np.testing.assert_array_equal(y[~nan], expected.view(np.uint16)[~nan])
    assert np.isnan(y[nan].view(ml_dtypes.bfloat16).astype(np.float32)).all()


def test_halves_widen_exactly(library):
    every = np.arange(2**16, dtype=np.uint16)
    np.testing.assert_array_equal(
        call(library, "from_bf16", every[:-3].copy()), every[:-3].view(ml_dtypes.bfloat16).astype(np.float32)
    )
    np.testing.assert_array_equal(call(library, "from_fp16", every), every.view(np.float16).astype(np.float32))


def test_reductions(library):
    x = np.random.default_rng(0).standard_normal(library.lanes()).astype(np.float32)
    assert library.sum_lanes(ctypes.c_void_p(x.ctypes.data)) == pytest.approx(x.sum(dtype=np.float64), rel=1e-6)
    assert library.max_lanes(ctypes.c_void_p(x.ctypes.data)) == x.max()
