"""Linear in NumPy, and what quantized activations do to it."""

import numpy as np

from ...quantization.quantized import QuantizedWeight
from .activation import Activation

CHANNEL_GROUP = 128
"""Elements of an activation row that share a scale where the weight has one scale per output channel."""


def linear(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    residual: np.ndarray | None = None,
    *,
    activation: Activation = Activation.NONE,
    transposed: bool = False,
) -> np.ndarray:
    """act(x W^T + bias) + residual: x [..., K], weight [N, K] ([K, N] if transposed), bias [N], residual [..., N]."""
    y = x @ (weight if transposed else weight.T)
    if bias is not None:
        y = y + bias
    y = activation(y)
    return y if residual is None else y + residual


def quantize_activations(x: np.ndarray, group: int) -> tuple[np.ndarray, np.ndarray]:
    """x float32 [M, K] as the kernels quantize it for integer weights: int8 [M, K] and float32 scales [M, groups].

    Symmetric, per row and group of K: q = round(x * (127 / absmax)), scale = absmax / 127. `group` 0 means 128.
    """
    group = group or CHANNEL_GROUP
    m, k = x.shape
    groups = -(-k // group)
    padded = np.zeros((m, groups * group), np.float32)
    padded[:, :k] = x
    parts = padded.reshape(m, groups, group)
    absmax = np.abs(parts).max(axis=2)
    tiny = absmax < np.float32(2.0**-100)
    inverse = np.where(tiny, np.float32(0), np.float32(127) / np.where(tiny, np.float32(1), absmax))
    scale = np.where(tiny, np.float32(0), absmax / np.float32(127))
    q = np.rint(parts * inverse[:, :, None]).astype(np.int8)
    return q.reshape(m, -1)[:, :k], scale


def dequantize(q: np.ndarray, scale: np.ndarray, group: int, zero: np.ndarray | None = None) -> np.ndarray:
    """scale * (q - zero) in float64: q [R, K], scale and zero [R, groups]; `group` 0 means one scale a row."""
    k = q.shape[1]
    scales, zeros = (
        0 if part is None else np.repeat(part.astype(np.float64), group or k, axis=1)[:, :k] for part in (scale, zero)
    )
    return scales * (q - zeros)


def quantized_linear(x: np.ndarray, weight: QuantizedWeight, group: int) -> np.ndarray:
    """x W^T with an integer W and activations quantized as the kernels do, in float64: [M, N]."""
    xq, xscale = quantize_activations(x, group)
    wide_x = dequantize(xq, xscale, group or CHANNEL_GROUP)
    return wide_x @ dequantize(weight.q, weight.scale, group, weight.zero).T
