"""What calibration tells about a layer's inputs, and how far a changed weight takes its outputs."""

from dataclasses import dataclass

import numpy as np

from ..errors import BuildError


@dataclass
class InputStatistics:
    """Sums over the inputs x [K] that a layer was given.

    tokens: how many. hessian: float32 [K, K], the sum of x xᵀ. absmax: float32 [K]. abs_sum: float32 [K].
    """

    tokens: int
    hessian: np.ndarray
    absmax: np.ndarray
    abs_sum: np.ndarray

    @classmethod
    def empty(cls, k: int) -> "InputStatistics":
        zeros = np.zeros(k, np.float32)
        return cls(0, np.zeros((k, k), np.float32), zeros, zeros.copy())

    def add(self, x: np.ndarray) -> None:
        """Count inputs, float32 [T, K]. Raises BuildError where one is NaN or infinite; nothing is counted then."""
        size = np.abs(x)
        if not len(x):
            return
        largest = size.max(axis=0)
        if not np.isfinite(largest).all():
            token, channel = np.argwhere(~np.isfinite(x))[0]
            raise BuildError(
                f"input {channel} of token {token} is {x[token, channel]}; inputs must be finite. The model overflows "
                "on the calibration data, or the checkpoint is damaged."
            )
        self.tokens += len(x)
        self.hessian += x.T @ x
        np.maximum(self.absmax, largest, out=self.absmax)
        self.abs_sum += size.sum(axis=0)

    @property
    def absmean(self) -> np.ndarray:
        """Mean magnitude of each input, float32 [K]."""
        return self.abs_sum / max(self.tokens, 1)

    @property
    def mean_hessian(self) -> np.ndarray:
        """Mean of x xᵀ, float32 [K, K]."""
        return self.hessian / max(self.tokens, 1)

    def divided(self, scale: np.ndarray) -> "InputStatistics":
        """The statistics of x / scale; scale is [K] and positive."""
        inverse = (1 / scale).astype(np.float32)
        hessian = self.hessian * inverse
        hessian *= inverse[:, None]
        return InputStatistics(self.tokens, hessian, self.absmax * inverse, self.abs_sum * inverse)


def squared_error(difference: np.ndarray, hessian: np.ndarray) -> float:
    """tr(D H Dᵀ): the squared outputs, summed, of a weight D [N, K] on inputs whose x xᵀ sum to H [K, K]."""
    return max(float(np.einsum("nk,nk->n", difference @ hessian, difference).sum(dtype=np.float64)), 0.0)


def relative_error(weight: np.ndarray, approximation: np.ndarray, statistics: InputStatistics) -> float:
    """Root mean square of the error of outputs, relative to that of the outputs: sqrt(tr(D H Dᵀ) / tr(W H Wᵀ)).

    Weights are [N, K], D is their difference. 0 where both are 0, infinite where only the outputs are.
    """
    error = squared_error(weight - approximation, statistics.hessian)
    size = squared_error(weight, statistics.hessian)
    if not size:
        return float("inf") if error else 0.0
    return (error / size) ** 0.5
