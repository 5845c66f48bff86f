"""Round to nearest: the simplest weight quantization, symmetric, one scale for each group along K.

A scale is rounded to fp16 before any weight is divided by it, so that what is stored is what was used.
"""

import numpy as np

from ..errors import BuildError
from .scheme import WeightScheme, WeightType

_BLOCK_ELEMENTS = 1 << 17  # a block and its temporaries stay in a core's cache
_FP16_TINY = float(np.finfo(np.float16).smallest_normal)


def quantize(weight: np.ndarray, scheme: WeightScheme) -> tuple[np.ndarray, np.ndarray]:
    """Quantize a [N, K] weight (any floating type) to int8 or int4: w is about scale * q.

    Returns q, int8 [N, K] (int4 values lie in [-8, 7]), and scale, float32 [N, groups], exact in fp16. int8 scales
    are absmax / 127. An int4 group takes the better, by squared error, of absmax / 7 and of the signed scale that
    sends its largest weight to -8 and so uses all 16 levels (GGML's Q4_0); such a scale may be negative. A group of
    zeros has scale 0. Works in blocks of rows: beyond the result, memory is a few MB.

    Raises BuildError naming a row that holds NaN, an infinity, or a weight whose scale overflows fp16.
    """
    if scheme.type not in (WeightType.INT8, WeightType.INT4):
        raise ValueError(f"round to nearest makes int8 or int4, not {scheme.type}")
    n, k = weight.shape
    group = scheme.group_size or max(k, 1)
    whole = k - k % group
    q = np.empty((n, k), np.int8)
    scale = np.empty((n, scheme.groups(k)), np.float32)
    rows = max(1, _BLOCK_ELEMENTS // max(k, 1))
    for first in range(0, n, rows):
        block = slice(first, first + rows)
        for columns, groups in (
            (slice(0, whole), slice(0, whole // group)),
            (slice(whole, k), slice(whole // group, None)),
        ):
            part = np.asarray(weight[block, columns], np.float32)
            if part.size:
                part = part.reshape(len(part), scale[block, groups].shape[1], -1)
                values, scale[block, groups] = _quantize_groups(part, scheme.type, (first, groups.start))
                q[block, columns] = values.reshape(len(part), -1)
    return q, scale


def dequantize(q: np.ndarray, scale: np.ndarray, k: int, group: int) -> np.ndarray:
    """The float32 [N, K] weight that q [N, K] and scale [N, groups] stand for; group 0 is the whole of K."""
    return q.astype(np.float32) * np.repeat(scale, group or max(k, 1), axis=1)[:, :k]


def _quantize_groups(x: np.ndarray, type_: WeightType, origin: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Quantize x, float32 [rows, groups, group size]: int8 values of the same shape, float32 scales [rows, groups]."""
    high, low = x.max(axis=2), x.min(axis=2)
    largest = np.maximum(high, -low)
    if type_ is WeightType.INT8:
        scale = _fp16(largest / 127)
        _check(largest, scale, origin)
        return _round(x, scale, -127, 127).astype(np.int8), scale
    signed = _fp16(np.where(high >= -low, high, low) / -8)
    plain = _fp16(largest / 7)
    _check(largest, plain, origin)
    values, other = _round(x, signed, -8, 7), _round(x, plain, -7, 7)
    use_other = _squared_error(x, other, plain) < _squared_error(x, values, signed)
    np.copyto(values, other, where=use_other[..., None])
    return values.astype(np.int8), np.where(use_other, plain, signed)


def _fp16(scale: np.ndarray) -> np.ndarray:
    """Scales rounded to fp16, as float32. Below fp16's normal range, where steps are coarse, away from zero, so that
    the largest weight is not clipped."""
    with np.errstate(over="ignore"):  # overflow becomes infinity, which _check reports
        rounded = scale.astype(np.float16)
    short = (np.abs(rounded) < np.abs(scale)) & (np.abs(scale) < _FP16_TINY)
    away = np.nextafter(rounded, np.copysign(np.float16(np.inf), rounded))
    return np.where(short, away, rounded).astype(np.float32)


def _check(largest: np.ndarray, scale: np.ndarray, origin: tuple[int, int]) -> None:
    bad = ~np.isfinite(scale)
    if bad.any():
        row, group = np.argwhere(bad)[0]
        raise BuildError(
            f"row {origin[0] + row}, group {origin[1] + group}: its largest weight is {largest[row, group]}; weights "
            "must be finite and their scale must fit fp16 (65504). The checkpoint is damaged, or cannot be quantized."
        )


def _round(x: np.ndarray, scale: np.ndarray, lowest: int, highest: int) -> np.ndarray:
    """x / scale to the nearest integer (ties to even) within [lowest, highest], as float32."""
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
    values = x * inverse[..., None]
    np.rint(values, out=values)
    return np.clip(values, lowest, highest, out=values)


def _squared_error(x: np.ndarray, values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    error = values * scale[..., None]
    error -= x
    return np.einsum("rgk,rgk->rg", error, error)
