"""Elementary functions of float32 that Triton lacks: its interpreter has none of libdevice."""

import triton
import triton.language as tl


@triton.jit
def tanh(x):
    """By its series near 0, where the difference of exponentials would cancel."""
    square = x * x
    series = x * (1.0 + square * (-0.33333334 + square * (0.13333334 + square * (-0.053968254 + square * 0.021869488))))
    size = tl.minimum(tl.abs(x), 20.0)
    far = 1.0 - 2.0 / (tl.exp(2.0 * size) + 1.0)
    return tl.where(tl.abs(x) < 0.25, series, tl.where(x < 0, -far, far))


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.70710678))


@triton.jit
def gelu_tanh(x):
    return 0.5 * x * (1.0 + tanh(0.79788456 * (x + 0.044715 * x * x * x)))


@triton.jit
def softplus(x):
    return tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(tl.minimum(x, 20.0))))


@triton.jit
def nearest(x):
    """To the nearest whole number, ties to even: float32 past 2^22 has no halves, and 1.5 * 2^23 leaves none."""
    return tl.where(tl.abs(x) < 4194304.0, (x + 12582912.0) - 12582912.0, x)


@triton.jit
def power(x, y):
    """x to the power of y; of a negative x for whole y, else NaN."""
    whole = tl.floor(y) == y
    odd = whole & (tl.floor(y * 0.5) * 2.0 != y)
    size = tl.exp2(y * tl.log2(tl.abs(x)))
    signed = tl.where(odd & (x < 0), -size, size)
    defined = tl.where((x < 0) & (whole == 0), float("nan"), signed)
    zero = tl.where(y > 0, 0.0, float("inf"))
    return tl.where(y == 0, 1.0, tl.where(x == 0, zero, defined))
