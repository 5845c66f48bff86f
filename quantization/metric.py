"""How much errors of a weight matter to a layer's outputs, seen group by group."""

from dataclasses import dataclass

import numpy as np

from .groups import parts

_LARGEST_RUN = 128  # inputs whose errors are weighed together


@dataclass(frozen=True)
class Metric:
    """Errors d of a run of inputs, all in one group, are measured by the square of factor @ d.

    factors: for each part of the groups (`groups.parts`), float32 [runs, size, size]; factorᵀ factor is the block of
    the mean of x xᵀ that belongs to a run. Of a metric that takes inputs to be independent, they are the roots of the
    block's diagonal, [runs, size].
    """

    factors: tuple[np.ndarray, ...]

    @classmethod
    def independent(cls, hessian: np.ndarray, group_size: int) -> "Metric":
        """From the diagonal alone of the mean of x xᵀ [K, K]: coarser, and much faster to measure by."""
        root = np.sqrt(np.maximum(np.diag(hessian), 0)).astype(np.float32)
        return cls(tuple(root[part.columns].reshape(-1, part.size) for part in parts(len(root), group_size)))

    @classmethod
    def of(cls, hessian: np.ndarray, group_size: int) -> "Metric":
        """From the mean of x xᵀ [K, K]: runs are groups, or of larger ones the largest equal parts up to 128 inputs."""
        factors = []
        for part in parts(len(hessian), group_size):
            size = next(size for size in range(min(part.size, _LARGEST_RUN), 0, -1) if part.size % size == 0)
            starts = range(part.columns.start, part.columns.stop, size)
            factors.append(_root(np.stack([hessian[start : start + size, start : start + size] for start in starts])))
        return cls(tuple(factors))

    def divided(self, scale: np.ndarray) -> "Metric":
        """The same for inputs x / scale, float32 [K]."""
        factors, first = [], 0
        for factor in self.factors:
            runs, *_, size = factor.shape
            last = first + runs * size
            factors.append(factor / scale[first:last].reshape(runs, *[1] * (factor.ndim - 2), size))
            first = last
        return Metric(tuple(factors))


def measured(factor: np.ndarray, x: np.ndarray) -> np.ndarray:
    """factor @ x by runs, for x [groups, group size, rows]."""
    runs, *_, size = factor.shape
    if factor.ndim == 2:
        return (factor[:, :, None] * x.reshape(runs, size, -1)).reshape(x.shape)
    return (factor @ x.reshape(runs, size, -1)).reshape(x.shape)


def _root(blocks: np.ndarray) -> np.ndarray:
    """factor with factorᵀ factor = block, of positive semidefinite blocks, float32 [runs, size, size]."""
    values, vectors = np.linalg.eigh(blocks.astype(np.float64))
    return (np.sqrt(np.maximum(values, 0))[:, :, None] * vectors.transpose(0, 2, 1)).astype(np.float32)
