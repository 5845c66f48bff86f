"""GPTQ: round a weight column by column, each column making up for the errors of those before it.

Frantar, Ashkboos, Hoefler, Alistarh, "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
Transformers" (2022). With H = R Rᵀ, R upper triangular, GPTQ's Cholesky factor of the inverse of H is the inverse of
R, and its updates add up to what Chee, Cai, Kuleshov, De Sa, "QuIP" (2023) call LDLQ: column k is rounded after (W -
Q)[:, :k] A[:k, k] is added to it, where A is R with each column divided by its diagonal. This needs no inverse and is
what is computed here.
"""

from collections.abc import Callable

import numpy as np

from ..errors import BuildError
from . import fp8, rtn
from .quantized import QuantizedWeight
from .scheme import WeightScheme, WeightType
from .statistics import InputStatistics
from .storable import levels

Rounding = Callable[[np.ndarray], np.ndarray]  # of weights divided by their scales, to numbers of the weight's type

_BLOCK = 128  # columns between two updates of all that follow
_ATTEMPTS = 8  # to factor a Hessian, with ten times the damping each


def quantize(
    weight: np.ndarray,
    scheme: WeightScheme,
    statistics: InputStatistics,
    *,
    damping: float = 0.01,
    act_order: bool = True,
    per_tensor: bool = False,
) -> QuantizedWeight:
    """Quantize a [N, K] weight to int8, int4 or FP8 so that its outputs on the calibration inputs change least.

    Scales and zeros are storable and found first, for all groups, as `rtn.quantize` finds them without statistics
    (`fp8.quantize` for FP8, `per_tensor` or not): ranges clipped for the inputs' sake leave no room for what columns
    make up for. Groups are static, runs of inputs whatever the order. `act_order` rounds inputs of the largest mean
    square first. `damping`, relative to the mean of the Hessian's diagonal, is added to that; ten times as much, and so
    on, where it does not make the Hessian positive definite. Inputs that were always 0 are rounded to nearest.

    Raises BuildError as `rtn.quantize` does.
    """
    is_fp8 = scheme.type is WeightType.FP8
    grid = (
        fp8.quantize(weight, scheme, per_tensor=per_tensor) if is_fp8 else rtn.quantize(weight, scheme, storable=True)
    )
    nearest: Rounding = fp8.nearest if is_fp8 else np.rint
    n, k = weight.shape
    squares = np.diagonal(statistics.hessian)
    order = np.argsort(-squares, kind="stable") if act_order else np.arange(k)
    feedback = _feedback(statistics.hessian, order, damping)
    group_of = order // (scheme.group_size or max(k, 1))
    scale = np.ascontiguousarray(grid.scale.T)
    zero = np.zeros_like(scale) if grid.zero is None else np.ascontiguousarray(grid.zero.T)
    lowest, highest = (-fp8.LARGEST, fp8.LARGEST) if is_fp8 else levels(scheme.type)
    column = np.asarray(weight, np.float32).T[order]  # [K, N], in order
    wanted, error = column.copy(), np.empty_like(column)
    q = np.empty((k, n), grid.q.dtype)
    for first in range(0, k, _BLOCK):
        last = min(first + _BLOCK, k)
        for i in range(first, last):
            step, middle = scale[group_of[i]], zero[group_of[i]]
            value = wanted[i] + feedback[i, first:i] @ error[first:i]
            level = np.clip(nearest(value / step) + middle, lowest, highest)
            error[i] = column[i] - step * (level - middle)
            q[order[i]] = level
        wanted[last:] += feedback[last:, first:last] @ error[first:last]
    return QuantizedWeight(np.ascontiguousarray(q.T), grid.scale, grid.zero)


def _feedback(hessian: np.ndarray, order: np.ndarray, damping: float) -> np.ndarray:
    """float32 [K, K], below the diagonal: how much of each earlier column's error, in order, a column makes up for."""
    backwards = order[::-1]
    h = hessian[np.ix_(backwards, backwards)].astype(np.float64)
    diagonal = h.reshape(-1)[:: len(h) + 1]
    mean = diagonal.mean() if diagonal.any() else 1.0
    added = 0.0
    for attempt in range(_ATTEMPTS):
        wanted = mean * damping * 10**attempt
        diagonal += wanted - added
        added = wanted
        try:
            lower = np.linalg.cholesky(h)
        except np.linalg.LinAlgError:
            continue
        lower /= np.diagonal(lower).copy()
        return np.ascontiguousarray(lower.T[::-1, ::-1], np.float32)
    raise BuildError(
        f"the Hessian of this layer's inputs is not positive definite, even with {added / mean:g} of its mean diagonal "
        "added: its statistics are damaged. Use other calibration data."
    )
