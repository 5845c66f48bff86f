"""FP8 weights: E4M3 (Micikevicius et al., "FP8 Formats for Deep Learning", 2022), scaled so that the largest is 448."""

import ml_dtypes
import numpy as np

from ..errors import BuildError
from .groups import row_blocks
from .quantized import QuantizedWeight
from .scales import check_finite, float32, inverse
from .scheme import WeightScheme, WeightType

LARGEST = WeightType.FP8.largest  # E4M3 has no infinity; beyond this a cast gives NaN


def quantize(weight: np.ndarray, scheme: WeightScheme, *, per_tensor: bool = False) -> QuantizedWeight:
    """Quantize a [N, K] weight (any floating type) to E4M3 with scale absmax / 448, float32 and positive.

    A scale for each group, or row (group size 0); with `per_tensor` all rows have one scale. A group of zeros has
    scale 1.

    Raises BuildError naming a row that holds NaN or an infinity, and for groups larger than K.
    """
    if scheme.type is not WeightType.FP8:
        raise ValueError(f"this makes FP8, not {scheme.type}")
    n, k = weight.shape
    if scheme.group_size > k:
        raise BuildError(f"groups of {scheme.group_size} weights are larger than K, which is {k}")
    size = scheme.group_size or max(k, 1)
    starts = np.arange(0, max(k, 1), size)
    widths = np.diff([*starts, k])
    blocks = list(row_blocks(n, k)) if k else []
    scale = np.ones((n, scheme.groups(k)), np.float32)
    for block in blocks:
        largest = np.maximum.reduceat(np.abs(np.asarray(weight[block], np.float32)), starts, axis=1)
        check_finite(largest, (block.start, 0))
        scale[block] = float32(largest / np.float32(LARGEST))
    if per_tensor and scale.size:
        scale[:] = scale.max()
    scale[scale == 0] = 1
    q = np.empty((n, k), ml_dtypes.float8_e4m3fn)
    for block in blocks:
        values = np.asarray(weight[block], np.float32) * np.repeat(inverse(scale[block]), widths, axis=1)
        q[block] = np.clip(values, -LARGEST, LARGEST)
    return QuantizedWeight(q, scale)


def nearest(values: np.ndarray) -> np.ndarray:
    """float32 numbers to the nearest of E4M3, as float32; those past 448 to that."""
    return np.clip(values, -LARGEST, LARGEST).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
