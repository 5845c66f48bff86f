"""The operation RotaryEmbedding: position by rotation, on queries or on keys."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..plugin import Input, Operation, Output, Sizes
from .reference import RotaryStyle, rotary


@dataclass(frozen=True)
class RotaryEmbeddingAttributes:
    """`rotary_dim` R: how many of a head's elements turn. `heads_axis`: 1 for x [1, H, T, D], 2 for x [1, T, H, D]."""

    style: RotaryStyle
    rotary_dim: int
    cos_stride: int = 1
    heads_axis: int = 1


def _infer(shapes: Sequence[Sizes | None], attributes: RotaryEmbeddingAttributes) -> tuple[Sizes, ...]:
    x, cos, sin = shapes
    if x is None or len(x) != 4 or attributes.heads_axis not in (1, 2):
        raise ValueError(f"RotaryEmbedding needs x [1, H, T, D] or [1, T, H, D], not {x} ({attributes})")
    width, rotary_dim = x[-1], attributes.rotary_dim
    if not isinstance(width, int) or rotary_dim % 2 or not 0 < rotary_dim <= width:
        raise ValueError(f"RotaryEmbedding cannot turn {rotary_dim} elements of a head of {width}")
    if cos is None or cos != sin or len(cos) != 3 or cos[1] != x[3 - attributes.heads_axis]:
        raise ValueError(f"RotaryEmbedding needs cos and sin [1, T, C] for x {x}, not {cos} and {sin}")
    needed = (rotary_dim // 2 - 1) * attributes.cos_stride + 1
    if not isinstance(cos[-1], int) or cos[-1] < needed:
        raise ValueError(f"RotaryEmbedding needs {needed} angles a token, not {cos[-1]}")
    return (x,)


def _reference(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, *, attributes: RotaryEmbeddingAttributes) -> np.ndarray:
    axis = attributes.heads_axis
    return rotary(
        x,
        np.expand_dims(cos, axis),
        np.expand_dims(sin, axis),
        style=attributes.style,
        rotary_dim=attributes.rotary_dim,
        cos_stride=attributes.cos_stride,
    )


OPERATIONS = (
    Operation(
        name="RotaryEmbedding",
        doc="(a, b) -> (a cos - b sin, b cos + a sin) for each pair of a head's first elements",
        inputs=(
            Input("x", "[1, H, T, D] or [1, T, H, D]"),
            Input("cos", "[1, T, C]"),
            Input("sin", "[1, T, C]"),
        ),
        outputs=(Output("y", "as x"),),
        attributes=RotaryEmbeddingAttributes,
        infer=_infer,
        reference=_reference,
        is_traced=True,
    ),
)
