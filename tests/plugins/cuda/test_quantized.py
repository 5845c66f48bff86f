"""Conversions that several kernels share: every E4M3 number, and numbers between."""

import ml_dtypes
import numpy as np
import torch
import triton
import triton.language as tl
from triton_interpreter import interpret

from enginesmith.plugins.cuda.quantized import e4m3_to_float, float_to_e4m3, float_to_int8


@triton.jit
def _decode(x, y, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(y + i, e4m3_to_float(tl.load(x + i)))


@triton.jit
def _encode(x, y, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(y + i, float_to_e4m3(tl.load(x + i)))


@triton.jit
def _round(x, y, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(y + i, float_to_int8(tl.load(x + i)))


def _numbers() -> np.ndarray:
    """4096 numbers of every size that E4M3 has, ties and what lies beyond among them."""
    codes = np.arange(256, dtype=np.uint8)
    exact = codes[codes & 0x7F != 0x7F].view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    steps = np.sort(exact)
    rng = np.random.default_rng(0)
    others = rng.standard_normal(4096).astype(np.float32) * np.exp2(rng.uniform(-12, 10, 4096)).astype(np.float32)
    return np.concatenate([exact, (steps[1:] + steps[:-1]) / 2, [1e9, -1e9], others])[:4096].astype(np.float32)


def test_every_byte_of_e4m3_is_widened_exactly() -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    found = torch.empty(256)
    interpret(_decode, (1,), codes, found, SIZE=256)
    expected = codes.numpy().view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    is_number = ~np.isnan(expected)
    np.testing.assert_array_equal(found.numpy()[is_number], expected[is_number])


def test_numbers_are_rounded_to_e4m3_as_ml_dtypes_does() -> None:
    x = _numbers()
    found = torch.empty(len(x), dtype=torch.uint8)
    interpret(_encode, (1,), torch.from_numpy(x), found, SIZE=4096)
    expected = np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    np.testing.assert_array_equal(found.numpy(), expected)


def test_numbers_are_rounded_to_int8_ties_to_even() -> None:
    x = np.concatenate([np.arange(-1024, 1024) / 8, np.array([1e6, -1e6]), np.zeros(2046)]).astype(np.float32)
    found = torch.empty(len(x), dtype=torch.int8)
    interpret(_round, (1,), torch.from_numpy(x), found, SIZE=4096)
    np.testing.assert_array_equal(found.numpy(), np.clip(np.rint(x), -128, 127).astype(np.int8))
