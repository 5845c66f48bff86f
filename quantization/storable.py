"""Integer grids that checkpoints can store: whole zeros in [-8, 7], positive scales exact in fp16.

For each group the grid of least squared error is searched for, by clipping the group's range to a part of it: what a
few large weights lose all others gain by finer steps.
"""

from dataclasses import dataclass

import numpy as np

from .scales import check_scales, fp16, inverse
from .scheme import WeightScheme, WeightType

_RATIOS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5)  # of the range that is not clipped
_FEWER_STEPS = (14, 13, 12)  # of the 15 between the ends of an int4 group that lies on a grid but not at its ends
_REFITS = 2


def quantize_storable(
    x: np.ndarray, scheme: WeightScheme, importance: np.ndarray | None, origin: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Quantize x, float32 [rows, groups, group size], as scale * (q - zero), zero being 0 for symmetric schemes.

    Returns q, int8 shaped as x, and float32 scale and zero [rows, groups]. A group of zeros has scale 1. `importance`,
    float32 [groups, group size] or None, weighs the squared errors.

    Raises BuildError, counting rows and groups from `origin`, for weights that are not finite or overflow fp16.
    """
    x = np.ascontiguousarray(x.transpose(1, 2, 0))  # rows innermost: sums over a group are sums of vectors
    q, scale, zero = _Search(x, importance, scheme.type, scheme.symmetric).run(origin)
    return q.transpose(2, 0, 1), scale.T, zero.T


@dataclass
class _Best:
    """The best grid so far of each group: least error, step and zero, [groups, rows]."""

    error: np.ndarray
    step: np.ndarray
    zero: np.ndarray


class _Search:
    """A search over a block of rows: x is float32 [groups, group size, rows]."""

    def __init__(self, x: np.ndarray, importance: np.ndarray | None, type_: WeightType, symmetric: bool) -> None:
        self._x = x
        self._root = None if importance is None else np.sqrt(importance)[:, :, None]
        self._lowest, self._highest = (-8, 7) if type_ is WeightType.INT4 else (-128, 127)
        self._symmetric = symmetric
        self._buffer = np.empty_like(x)

    def run(self, origin: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """q, int8 shaped as x; scale and zero, float32 [groups, rows]."""
        high, low = np.maximum(self._x.max(axis=1), 0), np.minimum(self._x.min(axis=1), 0)
        largest = np.maximum(high, -low)
        with np.errstate(over="ignore", invalid="ignore"):
            check_scales(largest.T, fp16(largest / (self._highest - self._lowest)).T, origin)
        best = _Best(np.full_like(high, np.inf), np.ones_like(high), np.zeros_like(high))
        for step, zero in self._candidates(high, low):
            self._try(best, fp16(step), zero)
        for _ in range(_REFITS):
            self._try(best, fp16(self._refit(best)), best.zero)
        q = self._round(best.step, best.zero)
        q += best.zero[:, None]
        best.step[largest == 0] = 1
        check_scales(largest.T, best.step.T, origin)
        return q.astype(np.int8), best.step, best.zero

    def _candidates(self, high: np.ndarray, low: np.ndarray):
        zeros = [np.zeros_like(high)] if self._symmetric else self._zeros(high, low)
        for zero in zeros:
            cover = np.maximum(high * inverse(self._highest - zero), low * inverse(self._lowest - zero))
            for ratio in _RATIOS:
                yield cover * np.float32(ratio), zero
        if self._highest == 7:
            for steps in _FEWER_STEPS:
                if self._symmetric:
                    yield np.maximum(high, -low) / np.float32(steps // 2 - 1), zeros[0]
                else:
                    step = (high - low) / np.float32(steps)
                    yield step, np.clip(np.rint(-8 - low * inverse(step)), -8, 7)

    def _zeros(self, high: np.ndarray, low: np.ndarray) -> list[np.ndarray]:
        """The two whole numbers about the zero that a group's range asks for."""
        ideal = self._lowest - low * inverse((high - low) / (self._highest - self._lowest))
        nearest = np.rint(ideal)
        other = nearest + np.where(ideal < nearest, -1, 1).astype(np.float32)
        return [np.clip(zero, self._lowest, self._highest) for zero in (nearest, other)]

    def _round(self, step: np.ndarray, zero: np.ndarray) -> np.ndarray:
        """q - zero for the weights, whole numbers as float32, in a buffer."""
        q = np.multiply(self._x, inverse(step)[:, None], out=self._buffer)
        np.rint(q, out=q)
        np.minimum(q, (self._highest - zero)[:, None], out=q)
        return np.maximum(q, (self._lowest - zero)[:, None], out=q)

    def _try(self, best: _Best, step: np.ndarray, zero: np.ndarray) -> None:
        error = self._round(step, zero)
        error *= step[:, None]
        error -= self._x
        if self._root is not None:
            error *= self._root
        squared = np.einsum("gkr,gkr->gr", error, error)
        better = squared < best.error
        for kept, found in ((best.error, squared), (best.step, step), (best.zero, zero)):
            np.copyto(kept, found, where=better)

    def _refit(self, best: _Best) -> np.ndarray:
        """The steps of least squares for the integers that the best grid gives."""
        q = self._round(best.step, best.zero)
        if self._root is not None:
            q *= self._root
            products = np.einsum("gkr,gkr,gk->gr", q, self._x, self._root[..., 0])
        else:
            products = np.einsum("gkr,gkr->gr", q, self._x)
        squares = np.einsum("gkr,gkr->gr", q, q)
        fit = products * inverse(squares)
        return np.where(fit > 0, fit, best.step)
