"""Linear in NumPy, and what quantized activations do to it."""

import numpy as np

from ...quantization.quantized import QuantizedWeight
from ...quantization.scheme import ActivationScheme
from .activation_function import ActivationFunction

CHANNEL_GROUP = 128
"""Elements of an activation row that share a scale where the weight has one scale per output channel."""


def linear(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    residual: np.ndarray | None = None,
    *,
    activation: ActivationFunction = ActivationFunction.NONE,
    transposed: bool = False,
) -> np.ndarray:
    """act(x W^T + bias) + residual: x [..., K], weight [N, K] ([K, N] if transposed), bias [N], residual [..., N]."""
    y = x @ (weight if transposed else weight.T)
    if bias is not None:
        y = y + bias
    y = activation(y)
    return y if residual is None else y + residual


def largest_fine(group: int) -> int:
    """The integer that the largest input of a token and group is scaled to, for int8 weights whose inputs keep 15 bits.

    128 * 127 + 63 splits into two bytes; longer groups have less, so that the sum of a group fits int32.
    """
    return min(128 * 127 + 63, (2**31 - 1) // (128 * (group or CHANNEL_GROUP)))


def quantize_activations(x: np.ndarray, group: int, largest: int = 127) -> tuple[np.ndarray, np.ndarray]:
    """x float32 [M, K] as the kernels quantize it for integer weights: int16 [M, K] and float32 scales [M, groups].

    Symmetric, per row and group of K: q = round(x * (largest / absmax)), scale = absmax / largest. `group` 0 means 128.
    """
    group = group or CHANNEL_GROUP
    m, k = x.shape
    groups = -(-k // group)
    padded = np.zeros((m, groups * group), np.float32)
    padded[:, :k] = x
    parts = padded.reshape(m, groups, group)
    absmax = np.abs(parts).max(axis=2)
    tiny = absmax < np.float32(2.0**-100)
    inverse = np.where(tiny, np.float32(0), np.float32(largest) / np.where(tiny, np.float32(1), absmax))
    scale = np.where(tiny, np.float32(0), absmax / np.float32(largest))
    q = np.rint(parts * inverse[:, :, None]).astype(np.int16)
    return q.reshape(m, -1)[:, :k], scale


def quantize_activations_static(x: np.ndarray, scale: float) -> np.ndarray:
    """x float32 [M, K] as the kernels quantize it for int8 weights with static inputs: int8, round(x / scale)."""
    return np.clip(np.rint(x / np.float32(scale)), -128, 127).astype(np.int8)


def round_to_fp8(x: np.ndarray) -> np.ndarray:
    """float32 to the nearest number of FP8 E4M3, ties to even, at most 448; float32 again."""
    size = np.minimum(np.abs(x), np.float32(448))
    step = np.exp2(np.maximum(np.frexp(size)[1] - 1, -6) - 3.0)
    return np.copysign(np.rint(size / step) * step, x).astype(np.float32)


def fp8_activations(x: np.ndarray, activation: ActivationScheme, input_scale: float | None = None) -> np.ndarray:
    """x float32 [M, K] as FP8 layers see it, in float64: scales times E4M3, of each token (absmax / 448) or given.

    A token whose absmax is below 2^-100 becomes zeros.
    """
    if activation is ActivationScheme.NONE:
        return x.astype(np.float64)
    if activation is ActivationScheme.STATIC:
        scale = np.full((len(x), 1), input_scale, np.float32)
    else:
        absmax = np.abs(x).max(axis=1, keepdims=True)
        scale = np.where(absmax < np.float32(2.0**-100), np.float32(0), absmax / np.float32(448))
    return round_to_fp8(x / np.where(scale > 0, scale, np.float32(np.inf))).astype(np.float64) * scale


def dequantize(q: np.ndarray, scale: np.ndarray, group: int, zero: np.ndarray | None = None) -> np.ndarray:
    """scale * (q - zero) in float64: q [R, K], scale and zero [R, groups]; `group` 0 means one scale a row."""
    k = q.shape[1]
    scales, zeros = (
        0 if part is None else np.repeat(part.astype(np.float64), group or k, axis=1)[:, :k] for part in (scale, zero)
    )
    return scales * (q - zeros)


def quantized_linear(
    x: np.ndarray, weight: QuantizedWeight, group: int, largest: int = 127, input_scale: float | None = None
) -> np.ndarray:
    """x W^T with an integer W and activations quantized as the kernels do, in float64: [M, N].

    `input_scale`: of static activations; without it each token's are found by groups,
    sending the largest input to `largest`.
    """
    if input_scale is None:
        wide_x = dequantize(*quantize_activations(x, group, largest), group or CHANNEL_GROUP)
    else:
        wide_x = quantize_activations_static(x, input_scale) * np.float64(np.float32(input_scale))
    return wide_x @ dequantize(weight.q, weight.scale, group, weight.zero).T
