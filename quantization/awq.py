"""AWQ: scale up the columns of a weight that matter most before it is rounded, and its inputs down.

Lin, Tang, Tang, Yang, Chen, Wang, Xiao, Dang, Gan, Han, "AWQ: Activation-aware Weight Quantization for LLM Compression
and Acceleration" (2023). The error of a layer's outputs is computed from the sum of x xᵀ, exactly, and needs no inputs.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from ..errors import BuildError
from . import storable
from .channels import mean_of_tied, normalised
from .metric import Metric
from .scheme import WeightScheme
from .statistics import InputStatistics, squared_error

_COARSE = tuple(step / 10 for step in range(10))  # exponents tried first
_FINE = 0.05  # then those that lie this far from the best
_ROWS = 256  # of all weights, evenly spread, that stand for all in the search


def search_scales(
    weights: Sequence[np.ndarray], scheme: WeightScheme, statistics: InputStatistics, tied: np.ndarray | None = None
) -> np.ndarray:
    """What to divide inputs by, and multiply weights' columns by, float32 [K], positive.

    `weights` [N_i, K] all read the same input. Tried are absmean(x)^a for exponents a from 0 to 1, alone and divided
    by the weights' mean magnitude to the power 1 - a. The scale that makes the squared error of outputs least after
    rounding with clipped groups wins; that of 0 alone is none. `tied`, int [K] or None: channels of equal numbers
    get equal scales. Round the scaled weights with `statistics.divided(scale)`, with more care than the search can take
    (`gptq`). Raises BuildError as `storable.quantize` does for the weights as they are.
    """
    metric = Metric.independent(statistics.mean_hessian, scheme.group_size)

    for weight in weights:
        storable.check(weight, scheme)

    of_inputs = mean_of_tied(statistics.absmean, tied)
    of_weights = mean_of_tied(_mean_magnitude(weights, scheme), tied)
    every = max(1, sum(map(len, weights)) // _ROWS)
    sample = [weight[::every] for weight in weights]

    def scale_of(exponent: float, by_weights: bool) -> np.ndarray:
        return normalised(of_inputs, of_weights, exponent, 1 - exponent if by_weights else 0)

    def error(scale: np.ndarray) -> float:
        return sum(_error(weight, scheme, metric, statistics.hessian, scale) for weight in sample)

    def errors(choices: Iterable[tuple[float, bool]]) -> dict[tuple[float, bool], float]:
        return {choice: error(scale_of(*choice)) for choice in choices}

    found = errors((exponent, by_weights) for exponent in _COARSE for by_weights in (False, True))
    exponent, by_weights = min(found, key=found.__getitem__)
    found |= errors((fine, by_weights) for fine in (exponent - _FINE, exponent + _FINE) if 0 <= fine <= 1)
    return scale_of(*min(found, key=found.__getitem__))


def _error(weight: np.ndarray, scheme: WeightScheme, metric: Metric, hessian: np.ndarray, scale: np.ndarray) -> float:
    """Infinite where fp16 cannot hold the scales of the scaled weight."""
    try:
        rounded = storable.quantize(weight * scale, scheme, metric.divided(scale), coarse=True)
    except BuildError:
        return float("inf")
    return squared_error(rounded.dequantize(scheme.group_size) / scale - weight, hessian)


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
