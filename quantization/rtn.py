"""Round to nearest: the simplest weight quantization, one scale and perhaps a zero point for each group along K.

Scales and zeros of groups are rounded to fp16 before any weight is divided by them, so that what is stored is what was
used. Scales of whole channels stay in float32.
"""

from collections.abc import Callable

import numpy as np

from . import storable as storable_grids
from .asymmetric import quantize_asymmetric
from .groups import parts, row_blocks
from .metric import Metric
from .quantized import QuantizedWeight
from .scales import check_scales, float32, fp16, inverse
from .scheme import WeightScheme, WeightType


def quantize(
    weight: np.ndarray, scheme: WeightScheme, *, storable: bool = False, metric: Metric | None = None
) -> QuantizedWeight:
    """Quantize a [N, K] weight (any floating type) to int8 or int4.

    With `storable` on grids that checkpoints can hold (`storable.quantize`), found by a search for the least squared
    error: of weights, or, with a `metric`, of what each group adds to the layer's outputs.

    Otherwise int8 scales are absmax / 127. A symmetric int4 group takes the better, by squared error, of absmax / 7
    and of the signed scale that sends its largest weight to -8 and so uses all 16 levels (GGML's Q4_0); such a scale
    may be negative. An asymmetric one takes the best of a few grids (`quantize_asymmetric`). A group of zeros has
    scale 0. Works in blocks of rows: beyond the result, memory is a few MB.

    Raises BuildError naming a row that holds NaN, an infinity, or a weight whose group's scale overflows fp16.
    """
    if not scheme.type.is_integer:
        raise ValueError(f"round to nearest makes int8 or int4, not {scheme.type}")
    if storable:
        return storable_grids.quantize(weight, scheme, metric)
    n, k = weight.shape
    q = np.empty((n, k), np.int8)
    scale = np.empty((n, scheme.groups(k)), np.float32)
    stored = fp16 if scheme.group_size else float32
    zero = None if scheme.symmetric else np.empty_like(scale)
    for part in parts(k, scheme.group_size):
        for rows in row_blocks(n, k):
            x = np.asarray(weight[rows, part.columns], np.float32)
            x = x.reshape(len(x), -1, part.size)
            box, origin = (rows, part.groups), (rows.start, part.groups.start)
            if zero is None:
                values, scale[box] = _quantize_groups(x, scheme.type, stored, origin)
            else:
                values, scale[box], zero[box] = quantize_asymmetric(x, origin)
            q[rows, part.columns] = values.reshape(len(x), -1)
    return QuantizedWeight(q, scale, zero)


def _quantize_groups(
    x: np.ndarray, type_: WeightType, stored: Callable[[np.ndarray], np.ndarray], origin: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Quantize x, float32 [rows, groups, group size]: int8 values of the same shape, float32 scales [rows, groups].

    `stored` rounds scales to the type that they are stored in.
    """
    high, low = x.max(axis=2), x.min(axis=2)
    largest = np.maximum(high, -low)
    if type_ is WeightType.INT8:
        scale = stored(largest / 127)
        check_scales(largest, scale, origin)
        return _round(x, scale, -127, 127).astype(np.int8), scale
    signed = stored(np.where(high >= -low, high, low) / -8)
    plain = stored(largest / 7)
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
