"""How far the columns of a weight can make up for errors of those before them: the part of GPTQ that knows no weight.

Layers that read one input share it. With H the Hessian, damped and in the order in which columns are rounded, and H =
R Rᵀ, R upper triangular, the squared error of outputs of an error e [K] is |Rᵀ e|². GPTQ's Cholesky factor of the
inverse of H is the inverse of R, and needs no inverse here: column k makes up for e[:k] R[:k, k] / R[k, k], and is left
with an error that counts R[k, k]². For a whole run of columns, those of block p that follow the columns c, both are
matrices: the run makes up for R[p, p]⁻ᵀ R[c, p]ᵀ e[c], and what is left counts as R[p, p]ᵀ says.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..errors import BuildError

_LARGEST_RUN = 128  # columns rounded between two products of matrices
_ATTEMPTS = 8  # to factor a Hessian, with ten times the damping each


@dataclass(frozen=True)
class Run:
    """Columns, in order, of one group. Their error d, when later ones have made up for it, counts |factor @ d|²."""

    columns: slice
    group: int
    factor: np.ndarray


@dataclass(frozen=True)
class Feedback:
    """`order`: int [K], the columns as they are rounded: groups stay together, and runs are whole groups if those are
    of at most 128 columns. `matrix`: float32 [K, K], below its diagonal: what a column makes up for, of each error in
    earlier runs, and of what is left in its own run of each earlier column.
    """

    order: np.ndarray
    runs: list[Run]
    matrix: np.ndarray
    has_whole_groups: bool

    @classmethod
    def of(cls, hessian: np.ndarray, group_size: int, *, damping: float = 0.01, act_order: bool = True) -> "Feedback":
        """From the sum of x xᵀ [K, K]. `act_order` rounds groups, and columns in them, of the largest mean square
        first. `damping`, relative to the mean of the diagonal, is added to that; ten times as much, and so on, where
        it does not make the Hessian positive definite. Columns of inputs that were always 0 make up for nothing.

        Raises BuildError where no damping helps.
        """
        k = len(hessian)
        size = group_size or max(k, 1)
        groups = [np.arange(first, min(first + size, k)) for first in range(0, k, size)]
        if act_order:
            squares = np.diagonal(hessian)
            groups = [columns[np.argsort(-squares[columns], kind="stable")] for columns in groups]
            groups.sort(key=lambda columns: -squares[columns].mean())
        order = np.concatenate(groups) if groups else np.arange(0)
        root = _root(hessian[np.ix_(order, order)], damping)
        matrix = np.zeros((k, k), np.float32)
        runs = []
        for columns in _runs([len(columns) for columns in groups]):
            own = root[columns, columns]
            earlier = slice(0, columns.start)
            matrix[columns, earlier] = np.linalg.solve(own.T, root[earlier, columns].T)
            matrix[columns, columns] = np.tril((own / np.diagonal(own)).T, -1)
            runs.append(Run(columns, int(order[columns.start]) // size, own.T.astype(np.float32)))
        return cls(order, runs, matrix, size <= _LARGEST_RUN)


def _runs(sizes: list[int]) -> Iterator[slice]:
    """Groups of these sizes, one after another, cut into runs."""
    first = 0
    for size in sizes:
        for start in range(0, size, _LARGEST_RUN):
            yield slice(first + start, first + min(start + _LARGEST_RUN, size))
        first += size


def _root(hessian: np.ndarray, damping: float) -> np.ndarray:
    """R, float64 and upper triangular, with R Rᵀ the damped Hessian."""
    h = hessian[::-1, ::-1].astype(np.float64)
    diagonal = h.reshape(-1)[:: len(h) + 1]
    mean = diagonal.mean() if diagonal.any() else 1.0
    added = 0.0
    for attempt in range(_ATTEMPTS):
        wanted = mean * damping * 10**attempt
        diagonal += wanted - added
        added = wanted
        try:
            return np.linalg.cholesky(h)[::-1, ::-1]
        except np.linalg.LinAlgError:
            continue
    raise BuildError(
        f"the Hessian of this layer's inputs is not positive definite, even with {added / mean:g} of its mean diagonal "
        "added: its statistics are damaged. Use other calibration data."
    )
