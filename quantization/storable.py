"""Round to nearest on integer grids that checkpoints can store: whole zeros in [-8, 7], positive scales exact in fp16.

For each group the grid of least error is searched for, by clipping the group's range to a part of it: what a few large
weights lose all others gain by finer steps. Then the scale is moved to the least squares fit of the weights to their
integers.
"""

from collections.abc import Iterator

import numpy as np

from ..errors import BuildError
from .groups import parts, row_blocks
from .metric import Metric, measured
from .quantized import QuantizedWeight
from .scales import check_scales, fp16, inverse
from .scheme import WeightScheme, WeightType

_RATIOS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5)  # of the range that is not clipped
_COARSE_RATIOS = (1.0, 0.9, 0.8, 0.7, 0.6)
_STEPS = (15, 14, 13, 12)  # between the ends of an int4 group: all, or those of a grid whose values are not all used
_LARGEST = {WeightType.INT4: (7, 6, 5, 4), WeightType.INT8: (127,)}
"""The same for symmetric grids: integers that the largest weight may become, of whatever sign."""
_REFITS = 2
_LARGEST_STEP = float(np.finfo(np.float16).max)


def levels(type_: WeightType) -> tuple[int, int]:
    """The lowest and highest integer of a storable weight."""
    return (-8, 7) if type_ is WeightType.INT4 else (-128, 127)


def quantize(
    weight: np.ndarray, scheme: WeightScheme, metric: Metric | None = None, *, coarse: bool = False
) -> QuantizedWeight:
    """Quantize a [N, K] weight (any floating type) to int8 or int4.

    Errors are measured by `metric`, or are squared errors without one. A `coarse` search tries fewer grids. A group of
    zeros has scale 1. Works in blocks of rows: beyond the result, memory is a few MB.

    Raises BuildError naming a row that holds NaN, an infinity, or a weight whose scale overflows fp16, and for groups
    larger than K.
    """
    check(weight, scheme)
    n, k = weight.shape
    q = np.empty((n, k), np.int8)
    scale, zero = np.empty((2, n, scheme.groups(k)), np.float32)
    for index, part in enumerate(parts(k, scheme.group_size)):
        factor = None if metric is None else metric.factors[index]
        for rows in row_blocks(n, k):
            x = np.asarray(weight[rows, part.columns], np.float32)
            x = np.ascontiguousarray(x.reshape(len(x), -1, part.size).transpose(1, 2, 0))
            search = _search(x, scheme, factor, coarse)
            values, step, middle = search.best()
            q[rows, part.columns] = values.transpose(2, 0, 1).reshape(len(step.T), -1)
            scale[rows, part.groups], zero[rows, part.groups] = step.T, middle.T
    return QuantizedWeight(q, scale, None if scheme.symmetric else zero)


def search_group(x: np.ndarray, scheme: WeightScheme, factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps and zeros, float32 [N], of the best grids for one group of weights, float32 [size, N]. The error d [size]
    of a row counts |factor @ d|²."""
    size, n = x.shape
    step, zero = np.empty((2, n), np.float32)
    for rows in row_blocks(n, size):
        search = _search(np.ascontiguousarray(x[None, :, rows]), scheme, factor[None], coarse=False)
        _, step[rows], zero[rows] = search.best()
    return step, zero


def check(weight: np.ndarray, scheme: WeightScheme) -> None:
    """Raise what `quantize` raises."""
    n, k = weight.shape
    if scheme.group_size > k:
        raise BuildError(
            f"groups of {scheme.group_size} weights are larger than K, which is {k}; choose a smaller group size, or "
            "-1 for one scale a channel."
        )
    for part in parts(k, scheme.group_size):
        for rows in row_blocks(n, k):
            x = np.asarray(weight[rows, part.columns], np.float32)
            largest = np.abs(x).reshape(len(x), -1, part.size).max(axis=2)
            check_scales(largest, fp16(largest / levels(scheme.type)[1]), (rows.start, part.groups.start))


def _search(x: np.ndarray, scheme: WeightScheme, factor: np.ndarray | None, coarse: bool) -> "_Search":
    """Search for grids of x, float32 [groups, group size, rows]: with rows innermost sums over groups are of
    vectors."""
    high, low = np.maximum(x.max(axis=1), 0), np.minimum(x.min(axis=1), 0)
    search = _Search(x, factor, scheme.type)
    for step, zero in _candidates(high, low, scheme, _COARSE_RATIOS if coarse else _RATIOS):
        search.consider(fp16(np.minimum(step, _LARGEST_STEP)), zero)
    for _ in range(0 if coarse else _REFITS):
        search.refit()
    return search


def _candidates(
    high: np.ndarray, low: np.ndarray, scheme: WeightScheme, ratios: tuple[float, ...]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Steps and zeros [groups, rows] of grids for groups that range from low <= 0 to high >= 0."""
    lowest, highest = levels(scheme.type)
    zeros = [np.zeros_like(high)] if scheme.symmetric else _zeros(high, low)
    for zero in zeros:
        cover = np.maximum(high * inverse(highest - zero), low * inverse(lowest - zero))
        for ratio in ratios:
            yield cover * np.float32(ratio), zero
    if scheme.symmetric:
        for largest in _LARGEST[scheme.type]:
            yield np.maximum(high, -low) / np.float32(largest), zeros[0]
    else:
        for steps in _STEPS:
            yield (high - low) / np.float32(steps), np.clip(np.rint(_zero(high, low, steps)), -8, 7)


def _zeros(high: np.ndarray, low: np.ndarray) -> list[np.ndarray]:
    """The two whole numbers about the int4 zero that a group's range asks for."""
    ideal = _zero(high, low, 15)
    nearest = np.rint(ideal)
    other = nearest + np.where(ideal < nearest, -1, 1).astype(np.float32)
    return [np.clip(zero, -8, 7) for zero in (nearest, other)]


def _zero(high: np.ndarray, low: np.ndarray, steps: int) -> np.ndarray:
    """The zero, not whole, that sends `low` to -8 where so many steps make the range."""
    return -8 - _divided(np.float32(steps) * low, high - low)


def _divided(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x / y; 0 where y is 0."""
    return np.divide(x, y, out=np.zeros_like(x), where=y != 0)


class _Search:
    """The best grid so far of each group of x, float32 [groups, group size, rows]."""

    def __init__(self, x: np.ndarray, factor: np.ndarray | None, type_: WeightType) -> None:
        self._x, self._factor = x, factor
        self._lowest, self._highest = levels(type_)
        self._buffer = np.empty_like(x)
        shape = len(x), x.shape[2]
        self._error = np.full(shape, np.inf, np.float32)
        self._step, self._zero = np.ones(shape, np.float32), np.zeros(shape, np.float32)

    def consider(self, step: np.ndarray, zero: np.ndarray) -> None:
        """Try a grid for each group: step and zero [groups, rows]."""
        error = self._round(step, zero)
        error *= step[:, None]
        error -= self._x
        error = self._measured(error)
        squared = np.einsum("gkr,gkr->gr", error, error)
        better = squared < self._error
        for kept, found in ((self._error, squared), (self._step, step), (self._zero, zero)):
            np.copyto(kept, found, where=better)

    def refit(self) -> None:
        """Try the steps of least squares for the integers that the best grids give."""
        q = self._measured(self._round(self._step, self._zero))
        products = np.einsum("gkr,gkr->gr", q, self._measured(self._x))
        fit = _divided(products, np.einsum("gkr,gkr->gr", q, q))
        self.consider(fp16(np.where(fit > 0, fit, self._step)), self._zero)

    def best(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """q, int8 [groups, group size, rows], steps and zeros [groups, rows]."""
        q = self._round(self._step, self._zero)
        q += self._zero[:, None]
        self._step[self._step == 0] = 1
        return q.astype(np.int8), self._step, self._zero

    def _round(self, step: np.ndarray, zero: np.ndarray) -> np.ndarray:
        """q - zero for the weights, whole numbers as float32, in a buffer."""
        q = np.multiply(self._x, inverse(step)[:, None], out=self._buffer)
        np.rint(q, out=q)
        np.minimum(q, (self._highest - zero)[:, None], out=q)
        return np.maximum(q, (self._lowest - zero)[:, None], out=q)

    def _measured(self, values: np.ndarray) -> np.ndarray:
        return values if self._factor is None else measured(self._factor, values)
