"""Vectors to and from bytes, int8 and FP8 E4M3: every code comes back, and floats go to the nearest one."""

import ctypes

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
DRIVER = """
#include "cpu/element.h"
using namespace es;
template <class E>
void load(const typename E::Type* x, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + VF::kLanes <= n; i += VF::kLanes) E::load(x + i).store(y + i);
  E::load(x + i, n - i).store(y + i, n - i);
}
template <class E>
void store(const float* x, typename E::Type* y, int64_t n) {
  int64_t i = 0;
  for (; i + VF::kLanes <= n; i += VF::kLanes) E::store(VF::load(x + i), y + i);
  E::store(VF::load(x + i, n - i), y + i, n - i);
}
extern "C" {
void from_int8(const int8_t* x, float* y, int64_t n) { load<Int8>(x, y, n); }
void to_int8(const float* x, int8_t* y, int64_t n) { store<Int8>(x, y, n); }
void from_fp8(const uint8_t* x, float* y, int64_t n) { load<Fp8>(x, y, n); }
void to_fp8(const float* x, uint8_t* y, int64_t n) { store<Fp8>(x, y, n); }
}
"""


@pytest.fixture(scope="module")
def library(compile_each) -> ctypes.CDLL:
    return compile_each(DRIVER)


def call(library: ctypes.CDLL, name: str, x: np.ndarray, dtype: type) -> np.ndarray:
    y = np.full(len(x) + 1, 77, dtype)
    getattr(library, name)(*(ctypes.c_void_p(a.ctypes.data) for a in (x, y)), ctypes.c_int64(len(x)))
    assert y[-1] == 77, "wrote past the end"
    return y[:-1]


def e4m3(x: np.ndarray) -> np.ndarray:
    """Codes, by ml_dtypes, for which what is too large is not a number."""
    return np.clip(x, -448, 448).astype(E4M3).view(np.uint8)


def numbers() -> np.ndarray:
    """All E4M3 codes but those of NaN."""
    return np.array([code for code in range(256) if code & 0x7F != 0x7F], np.uint8)


def test_every_e4m3_code_is_read_exactly_and_comes_back(library) -> None:
    codes = numbers()
    values = call(library, "from_fp8", codes, np.float32) * 256
    np.testing.assert_array_equal(values, codes.view(E4M3).astype(np.float32))
    np.testing.assert_array_equal(call(library, "to_fp8", values, np.uint8), codes)


def test_ties_of_e4m3_go_to_even_codes_and_their_neighbours_to_the_nearest(library) -> None:
    values = np.sort(numbers().view(E4M3).astype(np.float32))
    ties = (values[1:] + values[:-1]) / 2
    x = np.concatenate([ties, np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf))])
    codes = call(library, "to_fp8", x, np.uint8)
    np.testing.assert_array_equal(codes, e4m3(x))
    assert (codes[: len(ties)][ties != 0] % 2 == 0).all()


def test_e4m3_saturates_and_keeps_nan(library) -> None:
    x = np.array([448, 449, 464, 480, 1e30, np.inf, -464, -np.inf, 0.0, -0.0, 1e-30, np.nan], np.float32)
    codes = call(library, "to_fp8", x, np.uint8)
    assert codes.tolist() == [0x7E] * 6 + [0xFE] * 2 + [0, 0x80, 0, 0x7F]


@settings(max_examples=50)
@given(arrays(np.float32, st.integers(1, 70), elements=st.floats(-600, 600, width=32)))
def test_e4m3_is_that_of_ml_dtypes(library, x: np.ndarray) -> None:
    for scaled in (x, x * np.float32(2**-9), x * np.float32(2**-14)):
        np.testing.assert_array_equal(call(library, "to_fp8", scaled, np.uint8), e4m3(scaled))


def test_int8_goes_to_the_nearest_even_and_saturates(library) -> None:
    x = np.concatenate([np.arange(-131, 131, 0.25), [1e30, -1e30, np.inf, -np.inf]]).astype(np.float32)
    bytes_ = call(library, "to_int8", x, np.int8)
    np.testing.assert_array_equal(bytes_, np.clip(np.rint(x), -128, 127))
    np.testing.assert_array_equal(call(library, "from_int8", bytes_, np.float32), bytes_)
