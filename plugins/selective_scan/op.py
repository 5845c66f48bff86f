"""The operation SelectiveScan: Mamba's state space model, over a state that the runtime keeps."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..plugin import Input, Operation, Output, Sizes, Traits
from .reference import selective_scan


@dataclass(frozen=True)
class SelectiveScanAttributes:
    """It has none."""


def _infer(shapes: Sequence[Sizes | None], attributes: SelectiveScanAttributes) -> tuple[Sizes, ...]:
    u, dt, A, B, C = shapes
    if u is None or A is None or B is None or u != dt or B != C or not len(u) == len(B) == 3 or len(A) != 2:
        raise ValueError(f"SelectiveScan needs u, dt [1, T, D], A [N, D] and B, C [1, T, N], not {shapes}")
    if (B[2], u[2]) != A or u[:2] != B[:2]:
        raise ValueError(f"SelectiveScan: u {u}, A {A} and B {B} do not belong together")
    return (u,)


def _state(shapes: Sequence[Sizes | None], attributes: SelectiveScanAttributes) -> tuple[int, ...]:
    """A vector for each channel."""
    A = shapes[2]
    assert A is not None
    return int(A[1]), int(A[0])


def _reference(
    u: np.ndarray,
    dt: np.ndarray,
    A: np.ndarray,
    B: np.ndarray,
    C: np.ndarray,
    *,
    attributes: SelectiveScanAttributes,
) -> np.ndarray:
    """All tokens as one sequence that begins here."""
    return selective_scan(u[0], dt[0], A, B[0], C[0])[None]


OPERATIONS = (
    Operation(
        name="SelectiveScan",
        doc="the state of each channel decays by exp(dt A), gains dt u B, and is read by C; no dt A may be positive",
        inputs=(
            Input("u", "[1, T, D]"),
            Input("dt", "[1, T, D]"),
            Input("A", "[N, D]"),
            Input("B", "[1, T, N]"),
            Input("C", "[1, T, N]"),
        ),
        outputs=(Output("y", "[1, T, D]"),),
        attributes=SelectiveScanAttributes,
        infer=_infer,
        reference=_reference,
        traits=Traits(is_stateful=True, is_matmul=True),
        is_traced=True,
        state=_state,
    ),
)
