"""Scales as they are stored: those of groups rounded to fp16, and refused where that cannot hold them."""

import numpy as np

from ..errors import BuildError

_LEAST = np.finfo(np.float32).smallest_normal  # a scale that can be divided by
_FP16_TINY = float(np.finfo(np.float16).smallest_normal)


def fp16(scale: np.ndarray) -> np.ndarray:
    """Scales rounded to fp16, as float32. Below fp16's normal range, where steps are coarse, away from zero, so that
    the largest weight is not clipped."""
    with np.errstate(over="ignore"):  # overflow becomes infinity, which check_scales reports
        rounded = scale.astype(np.float16)
    tiny = np.abs(scale) < _FP16_TINY
    if tiny.any():
        short = tiny & (np.abs(rounded) < np.abs(scale))
        rounded[short] = np.nextafter(rounded[short], np.copysign(np.float16(np.inf), rounded[short]))
    return rounded.astype(np.float32)


def float32(scale: np.ndarray) -> np.ndarray:
    """Scales in float32; those too small to divide by are raised to the smallest that works."""
    return np.where((scale != 0) & (np.abs(scale) < _LEAST), np.copysign(_LEAST, scale), scale)


def inverse(scale: np.ndarray) -> np.ndarray:
    """1 / scale; 0 where that is 0."""
    return np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)


def check_scales(largest: np.ndarray, scale: np.ndarray, origin: tuple[int, int]) -> None:
    """Raise BuildError naming the first group, counted from `origin` (row, group), whose scale is not finite.

    `largest` and `scale` are [rows, groups].
    """
    _require_finite(scale, largest, origin, "finite and their scale must fit fp16 (65504)")


def check_finite(largest: np.ndarray, origin: tuple[int, int]) -> None:
    """Raise BuildError naming the first group, counted from `origin` (row, group), whose weights are not finite."""
    _require_finite(largest, largest, origin, "finite")


def _require_finite(values: np.ndarray, largest: np.ndarray, origin: tuple[int, int], wanted: str) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        row, group = np.argwhere(bad)[0]
        raise BuildError(
            f"row {origin[0] + row}, group {origin[1] + group}: its largest weight is {largest[row, group]}; weights "
            f"must be {wanted}. The checkpoint is damaged, or cannot be quantized."
        )
