"""The operation Wkv: RWKV-4's decaying average of values, over a state that the runtime keeps."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..plugin import Input, Operation, Output, Sizes, Traits
from .reference import wkv


@dataclass(frozen=True)
class WkvAttributes:
    """It has none."""


def _infer(shapes: Sequence[Sizes | None], attributes: WkvAttributes) -> tuple[Sizes, ...]:
    w, u, k, v = shapes
    if k is None or k != v or len(k) != 3:
        raise ValueError(f"Wkv needs k and v of one shape [1, T, D], not {k} and {v}")
    if w != (k[2],) or u != (k[2],):
        raise ValueError(f"Wkv: w {w} and u {u} for {k[2]} channels")
    return (k,)


def _state(shapes: Sequence[Sizes | None], attributes: WkvAttributes) -> tuple[int, ...]:
    """Of each channel the sum of weighted values, that of weights, and the exponent that both are relative to."""
    k = shapes[2]
    assert k is not None
    return 3, int(k[2])


def _reference(w: np.ndarray, u: np.ndarray, k: np.ndarray, v: np.ndarray, *, attributes: WkvAttributes) -> np.ndarray:
    """All tokens as one sequence that begins here."""
    return wkv(w, u, k[0], v[0])[None]


OPERATIONS = (
    Operation(
        name="Wkv",
        doc="the average of a sequence's values so far, weighted by exp(k); k gains w with every token, and u at first",
        inputs=(Input("w", "[D]"), Input("u", "[D]"), Input("k", "[1, T, D]"), Input("v", "[1, T, D]")),
        outputs=(Output("y", "[1, T, D]"),),
        attributes=WkvAttributes,
        infer=_infer,
        reference=_reference,
        traits=Traits(is_stateful=True),
        is_traced=True,
        state=_state,
    ),
)
