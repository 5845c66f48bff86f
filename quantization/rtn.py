"""Round to nearest: the simplest weight quantization, one scale and perhaps a zero point for each group along K.

Scales and zeros are rounded to fp16 before any weight is divided by them, so that what is stored is what was used.
"""

import numpy as np

from ..errors import BuildError
from .asymmetric import quantize_asymmetric
from .quantized import QuantizedWeight
from .scales import check_scales, fp16, inverse
from .scheme import WeightScheme, WeightType
from .statistics import InputStatistics
from .storable import quantize_storable

_BLOCK_ELEMENTS = 1 << 17  # a block and its temporaries stay in a core's cache


def quantize(
    weight: np.ndarray, scheme: WeightScheme, *, storable: bool = False, statistics: InputStatistics | None = None
) -> QuantizedWeight:
    """Quantize a [N, K] weight (any floating type) to int8 or int4.

    `storable` grids are those that checkpoints can hold, whole zeros in [-8, 7] and positive scales, found by a search
    over clipped ranges for the least squared error (`quantize_storable`); `statistics`, which they alone use, weigh
    each input's errors by its mean square.

    Else int8 scales are absmax / 127. A symmetric int4 group takes the better, by squared error, of absmax / 7 and of
    the signed scale that sends its largest weight to -8 and so uses all 16 levels (GGML's Q4_0); such a scale may be
    negative. An asymmetric one takes the best of a few grids (`quantize_asymmetric`). A group of zeros has scale 0.
    Works in blocks of rows: beyond the result, memory is a few MB.

    Raises BuildError naming a row that holds NaN, an infinity, or a weight whose scale overflows fp16, and for a
    storable grid whose groups are larger than K.
    """
    if not scheme.type.is_integer:
        raise ValueError(f"round to nearest makes int8 or int4, not {scheme.type}")
    n, k = weight.shape
    if storable and scheme.group_size > k:
        raise BuildError(
            f"groups of {scheme.group_size} weights are larger than K, which is {k}; choose a smaller group size, or "
            "-1 for one scale a channel."
        )
    importance = None if statistics is None else np.ascontiguousarray(np.diagonal(statistics.mean_hessian))
    group = scheme.group_size or max(k, 1)
    whole = k - k % group
    q = np.empty((n, k), np.int8)
    scale = np.empty((n, scheme.groups(k)), np.float32)
    zero = None if scheme.symmetric else np.empty_like(scale)
    rows = max(1, _BLOCK_ELEMENTS // max(k, 1))
    for first in range(0, n, rows):
        block = slice(first, first + rows)
        for columns, groups in (
            (slice(0, whole), slice(0, whole // group)),
            (slice(whole, k), slice(whole // group, None)),
        ):
            part = np.asarray(weight[block, columns], np.float32)
            if not part.size:
                continue
            part = part.reshape(len(part), scale[block, groups].shape[1], -1)
            origin = first, groups.start
            if storable:
                weights = None if importance is None else importance[columns].reshape(part.shape[1:])
                values, scale[block, groups], zeros = quantize_storable(part, scheme, weights, origin)
            elif zero is None:
                values, scale[block, groups] = _quantize_groups(part, scheme.type, origin)
                zeros = None
            else:
                values, scale[block, groups], zeros = quantize_asymmetric(part, origin)
            q[block, columns] = values.reshape(len(part), -1)
            if zero is not None:
                zero[block, groups] = zeros
    return QuantizedWeight(q, scale, zero)


def _quantize_groups(x: np.ndarray, type_: WeightType, origin: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Quantize x, float32 [rows, groups, group size]: int8 values of the same shape, float32 scales [rows, groups]."""
    high, low = x.max(axis=2), x.min(axis=2)
    largest = np.maximum(high, -low)
    if type_ is WeightType.INT8:
        scale = fp16(largest / 127)
        check_scales(largest, scale, origin)
        return _round(x, scale, -127, 127).astype(np.int8), scale
    signed = fp16(np.where(high >= -low, high, low) / -8)
    plain = fp16(largest / 7)
    check_scales(largest, plain, origin)
    values, other = _round(x, signed, -8, 7), _round(x, plain, -7, 7)
    use_other = _squared_error(x, other, plain) < _squared_error(x, values, signed)
    np.copyto(values, other, where=use_other[..., None])
    return values.astype(np.int8), np.where(use_other, plain, signed)


def _round(x: np.ndarray, scale: np.ndarray, lowest: int, highest: int) -> np.ndarray:
    """x / scale to the nearest integer (ties to even) within [lowest, highest], as float32."""
    values = x * inverse(scale)[..., None]
    np.rint(values, out=values)
    return np.clip(values, lowest, highest, out=values)


def _squared_error(x: np.ndarray, values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    error = values * scale[..., None]
    error -= x
    return np.einsum("rgk,rgk->rg", error, error)
