"""The operation SoftCap."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from enginesmith.plugins.plugin import Input, Operation, Output, Sizes, Traits

from .reference import softcap


@dataclass(frozen=True)
class SoftCapAttributes:
    cap: float


def _infer(shapes: Sequence[Sizes | None], attributes: SoftCapAttributes) -> tuple[Sizes, ...]:
    (x,) = shapes
    if not x or attributes.cap <= 0:
        raise ValueError(f"SoftCap needs x [..., D] and a positive cap, not {x} and {attributes.cap}")
    return (x,)


def _reference(x: np.ndarray, *, attributes: SoftCapAttributes) -> np.ndarray:
    return softcap(x, attributes.cap)


OPERATIONS = (
    Operation(
        name="SoftCap",
        doc="cap * tanh(x / cap)",
        inputs=(Input("x", "[..., D]"),),
        outputs=(Output("y", "[..., D]"),),
        attributes=SoftCapAttributes,
        infer=_infer,
        reference=_reference,
        traits=Traits(row_inputs=(0,)),
    ),
)
