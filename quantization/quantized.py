"""A weight in integers: what quantizers make, checkpoints may hold, and packers take."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class QuantizedWeight:
    """A weight [N, K] as scale * (q - zero), one scale and zero for a group along K.

    q: int8 [N, K]; int4 values lie in [-8, 7]. scale: float32 [N, groups]. zero: float32 [N, groups], in steps and not
    necessarily whole, or None for a symmetric weight. Scales and zeros of groups are exact in fp16. Where a format
    counts q from 0 to 15, subtract 8 from q and from zero.
    """

    q: np.ndarray
    scale: np.ndarray
    zero: np.ndarray | None = None

    def rows(self, first: int, last: int) -> "QuantizedWeight":
        """Rows [first, last), as views."""
        part = slice(first, last)
        return QuantizedWeight(self.q[part], self.scale[part], None if self.zero is None else self.zero[part])

    def dequantize(self, group_size: int) -> np.ndarray:
        """The float32 weight [N, K]; group size 0 is the whole of K."""
        k = self.q.shape[1]
        values = self.q.astype(np.float32)
        if self.zero is not None:
            values -= _spread(self.zero, group_size, k)
        return values * _spread(self.scale, group_size, k)


def _spread(of_groups: np.ndarray, group_size: int, k: int) -> np.ndarray:
    """[N, groups] to [N, K]."""
    return np.repeat(of_groups, group_size or max(k, 1), axis=1)[:, :k]
