"""The operation StateSpaceScan: the recurrence of Mamba-2, over a state that the runtime keeps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..plugin import Input, Operation, Output, Sizes, Traits
from .reference import state_space_scan


@dataclass(frozen=True)
class StateSpaceScanAttributes:
    """`softplus`: dt becomes log(1 + exp(dt)), after its bias and before the limits `dt_min` and `dt_max`."""

    softplus: int = 0
    dt_min: float = 0.0
    dt_max: float = math.inf


def _infer(shapes: Sequence[Sizes | None], attributes: StateSpaceScanAttributes) -> tuple[Sizes, ...]:
    x, dt, a, b, c, d, dt_bias = [*shapes, None, None][:7]
    if x is None or b is None or len(x) != 4 or len(b) != 4 or b != c or b[:2] != x[:2]:
        raise ValueError(f"StateSpaceScan needs x [1, T, H, P] and b and c [1, T, G, N], not {x}, {b} and {c}")
    heads, groups = x[2], b[2]
    if not isinstance(heads, int) or not isinstance(groups, int) or heads % groups:
        raise ValueError(f"StateSpaceScan: {heads} heads over {groups} groups")
    if dt != x[:3]:
        raise ValueError(f"StateSpaceScan: dt of shape {dt} for x of shape {x}")
    for name, shape in (("a", a), ("d", d), ("dt_bias", dt_bias)):
        if shape not in (None, (heads,)):
            raise ValueError(f"StateSpaceScan: {name} of shape {shape} for {heads} heads")
    return (x,)


def _state(shapes: Sequence[Sizes | None], attributes: StateSpaceScanAttributes) -> tuple[int, ...]:
    x, b = shapes[0], shapes[3]
    assert x is not None
    assert b is not None
    heads, width, size = (int(each) for each in (x[2], x[3], b[3]))
    return (heads, width, size)


def _reference(
    x: np.ndarray,
    dt: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    d: np.ndarray | None = None,
    dt_bias: np.ndarray | None = None,
    *,
    attributes: StateSpaceScanAttributes,
) -> np.ndarray:
    """All tokens as one sequence that begins here."""
    limits = (attributes.dt_min, attributes.dt_max)
    return state_space_scan(x[0], dt[0], a, b[0], c[0], d, dt_bias, softplus=bool(attributes.softplus), limits=limits)[
        None
    ]


OPERATIONS = (
    Operation(
        name="StateSpaceScan",
        doc="of each head, h <- exp(dt a) h + dt x b^T and y = h c + d x, along each sequence; "
        "heads share b and c by group",
        inputs=(
            Input("x", "[1, T, H, P]"),
            Input("dt", "[1, T, H]"),
            Input("a", "[H]"),
            Input("b", "[1, T, G, N]"),
            Input("c", "[1, T, G, N]"),
            Input("d", "[H]", optional=True),
            Input("dt_bias", "[H]", optional=True),
        ),
        outputs=(Output("y", "[1, T, H, P]"),),
        attributes=StateSpaceScanAttributes,
        infer=_infer,
        reference=_reference,
        traits=Traits(is_stateful=True, is_matmul=True),
        is_traced=True,
        state=_state,
    ),
)
