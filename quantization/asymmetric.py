"""int4 with zero points: for each group of weights the grid of 16 even steps that lies closest to it."""

import numpy as np

from .scales import check_scales, fp16, inverse

_STEPS = (15, 14, 17)  # into which a group's range is cut: 15 reach its ends, 17 clip them, and 14 leave a value unused
_NARROWEST = 1 / 256  # a step is at least this part of the largest weight: zeros stay small, and so exact, in fp16


def quantize_asymmetric(x: np.ndarray, origin: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Quantize x, float32 [rows, groups, group size], as scale * (q - zero).

    Returns q, int8 in [-8, 7] of the same shape, and float32 scale and zero [rows, groups], exact in fp16. For each of
    a few grids, centred on the group's range, weights are rounded to the grid, the grid is moved to the least squares
    fit of the weights to their integers, and they are rounded again (as GGML searches for Q4_K). One more grid has no
    zero point and sends the largest weight to -8. The grid with the least squared error stays, or zeros. Weights on
    such a grid come back as they were: those of GGUF's Q4_0 exactly, those of its Q4_1 but for the zero's rounding.

    Raises BuildError naming a row that holds NaN, an infinity, or a weight whose scale overflows fp16.
    """
    x = np.ascontiguousarray(x.transpose(2, 0, 1))  # groups innermost: sums over a group are sums of vectors
    high, low = x.max(axis=0), x.min(axis=0)
    largest = np.maximum(high, -low)
    with np.errstate(over="ignore", invalid="ignore"):
        width = high - low
    check_scales(largest, fp16(width / _STEPS[0]), origin)
    centre, narrowest, total = low + width / 2, largest * _NARROWEST, x.sum(axis=0)
    scale, zero = np.zeros_like(width), np.zeros_like(width)
    least = np.einsum("k...,k...->...", x, x)
    with np.errstate(over="ignore", invalid="ignore"):  # of steps too small to divide by: such a grid is not better
        grids = []
        for steps in _STEPS:
            middle = -0.5 if steps % 2 else -1.0  # of a range whose ends are integers
            grids.append(_fit(x, total, centre, middle, np.maximum(width / steps, narrowest), narrowest))
        grids.append((fp16(np.where(high >= -low, high, low) / -8), np.zeros_like(width)))
        for grid in grids:
            error = _squared_error(x, *grid)
            better = error < least
            for best, found in zip((least, scale, zero), (error, *grid), strict=True):
                np.copyto(best, found, where=better)
    q = np.ascontiguousarray(_round(x, scale, zero).transpose(1, 2, 0))
    return q.astype(np.int8), scale, zero


def _fit(
    x: np.ndarray, total: np.ndarray, centre: np.ndarray, middle: float, step: np.ndarray, narrowest: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Stored scale and zero [...] of the line of least squares through (q, x), q being x rounded to a first grid."""
    size = len(x)
    q = _round(x, step, middle - centre * inverse(step))
    q_total = q.sum(axis=0)
    q_mean = q_total / size
    spread = np.einsum("k...,k...->...", q, q) - q_total * q_mean
    slope = np.einsum("k...,k...->...", q, x) - total * q_mean
    np.divide(slope, spread, out=slope, where=spread > 0)
    np.copyto(slope, step, where=spread <= 0)
    slope = np.maximum(slope, narrowest)
    scale = fp16(slope)
    zero = (q_mean - total / size * inverse(scale)).astype(np.float16).astype(np.float32)
    return scale, zero


def _round(x: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    q = x * inverse(scale)
    q += zero
    np.rint(q, out=q)
    return np.clip(q, -8, 7, out=q)


def _squared_error(x: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    error = _round(x, scale, zero)
    error -= zero
    error *= scale
    error -= x
    return np.einsum("k...,k...->...", error, error)
