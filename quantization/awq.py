"""AWQ: scale up the columns of a weight that matter most before it is rounded, and its inputs down.

Lin, Tang, Tang, Yang, Chen, Wang, Xiao, Dang, Gan, Han, "AWQ: Activation-aware Weight Quantization for LLM Compression
and Acceleration" (2023). The error of a layer's outputs is computed from the sum of x xᵀ, exactly, and needs no inputs.
"""

from collections.abc import Sequence

import numpy as np

from . import rtn
from .channels import mean_of_tied, normalised
from .scheme import WeightScheme
from .statistics import InputStatistics, squared_error

_STEPS = 20  # exponents tried


def search_scales(
    weights: Sequence[np.ndarray], scheme: WeightScheme, statistics: InputStatistics, tied: np.ndarray | None = None
) -> np.ndarray:
    """What to divide inputs by, and multiply weights' columns by, float32 [K], positive.

    `weights` [N_i, K] all read the same input. Tried are absmean(x)^a, and that divided by the weights' mean magnitude
    to the power 1 - a, for exponents a from 0 to 1; ones, too. The best makes the squared error of all outputs least
    after rounding. `tied`, int [K] or None: channels of equal numbers get equal scales.
    """
    of_inputs = mean_of_tied(statistics.absmean, tied)
    of_weights = mean_of_tied(_mean_magnitude(weights, scheme), tied)
    ones = np.ones(len(of_inputs), np.float32)
    best, least = ones, _error(weights, scheme, statistics, ones)
    for step in range(_STEPS):
        ratio = step / _STEPS
        for down in {0.0, 1 - ratio} if ratio else {1.0}:
            scale = normalised(of_inputs, of_weights, ratio, down)
            error = _error(weights, scheme, statistics, scale)
            if error < least:
                best, least = scale, error
    return best


def clip(weight: np.ndarray, scheme: WeightScheme, statistics: InputStatistics) -> np.ndarray:
    """The weight with each group clipped to the range that is best to round, float32 [N, K], to round to nearest."""
    group = scheme.group_size
    found = rtn.quantize(weight, scheme, storable=True, statistics=statistics)
    zero = np.zeros_like(found.scale) if found.zero is None else found.zero
    lowest, highest = (-8, 7) if scheme.type.bits == 4 else (-128, 127)
    k = weight.shape[1]
    low, high = (np.repeat(found.scale * (end - zero), group or k, axis=1)[:, :k] for end in (lowest, highest))
    return np.clip(weight, low, high)


def _error(
    weights: Sequence[np.ndarray], scheme: WeightScheme, statistics: InputStatistics, scale: np.ndarray
) -> float:
    total = 0.0
    for weight in weights:
        rounded = rtn.quantize(weight * scale, scheme, storable=True).dequantize(scheme.group_size)
        total += squared_error(rounded / scale - weight, statistics.hessian)
    return total


def _mean_magnitude(weights: Sequence[np.ndarray], scheme: WeightScheme) -> np.ndarray:
    """Mean over all rows of each column's magnitude relative to the largest of its group, float32 [K]."""
    total, rows = np.zeros(weights[0].shape[1], np.float64), 0
    for weight in weights:
        k = weight.shape[1]
        size = np.abs(weight)
        starts = np.arange(0, k, scheme.group_size or max(k, 1))
        largest = np.maximum.reduceat(size, starts, axis=1)
        largest[largest == 0] = 1
        total += (size / np.repeat(largest, np.diff([*starts, k]), axis=1)).sum(axis=0)
        rows += len(weight)
    return (total / max(rows, 1)).astype(np.float32)
