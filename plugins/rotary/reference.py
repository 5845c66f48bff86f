"""Rotary position embeddings in NumPy; Su et al., RoFormer, 2021."""

from enum import StrEnum

import numpy as np


class RotaryStyle(StrEnum):
    """Which elements of a head make pair i, out of R / 2."""

    NEOX = "neox"
    """i and i + R/2."""
    GPTJ = "gptj"
    """2i and 2i + 1."""
    GPTJ_TO_NEOX = "gptj_to_neox"
    """2i and 2i + 1 on the way in, i and i + R/2 on the way out."""


def rotary(
    x: np.ndarray, cos: np.ndarray, sin: np.ndarray, *, style: RotaryStyle, rotary_dim: int, cos_stride: int = 1
) -> np.ndarray:
    """Rotates the first `rotary_dim` of x [..., D] by angles cos, sin [..., C] whose leading axes broadcast to x's.

    The angle of pair i is cos[..., i * cos_stride]. The other elements are copied.
    """
    half = rotary_dim // 2
    c, s = (angles[..., : half * cos_stride : cos_stride] for angles in (cos, sin))
    near, far = slice(0, half), slice(half, rotary_dim)
    even, odd = slice(0, rotary_dim, 2), slice(1, rotary_dim, 2)
    first, second = (near, far) if style is RotaryStyle.NEOX else (even, odd)
    to_first, to_second = (even, odd) if style is RotaryStyle.GPTJ else (near, far)
    y = x.copy()
    y[..., to_first] = x[..., first] * c - x[..., second] * s
    y[..., to_second] = x[..., second] * c + x[..., first] * s
    return y
