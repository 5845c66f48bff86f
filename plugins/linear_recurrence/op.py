"""The operation LinearRecurrence: h <- a h + x or h <- max(a + h, x), over a state that the runtime keeps."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..plugin import Input, Operation, Output, Sizes, Traits
from .reference import linear_recurrence


@dataclass(frozen=True)
class LinearRecurrenceAttributes:
    """`max_plus`: h <- max(a + h, x) instead of h <- a h + x."""

    max_plus: int = 0


def _infer(shapes: Sequence[Sizes | None], attributes: LinearRecurrenceAttributes) -> tuple[Sizes, ...]:
    x, a = shapes
    if x is None or x != a or len(x) != 3:
        raise ValueError(f"LinearRecurrence needs x and a of one shape [1, T, D], not {x} and {a}")
    return (x,)


def _state(shapes: Sequence[Sizes | None], attributes: LinearRecurrenceAttributes) -> tuple[int, ...]:
    """The last h."""
    x = shapes[0]
    assert x is not None
    return (int(x[2]),)


def _reference(x: np.ndarray, a: np.ndarray, *, attributes: LinearRecurrenceAttributes) -> np.ndarray:
    """All tokens as one sequence that begins here."""
    return linear_recurrence(x[0], a[0], max_plus=bool(attributes.max_plus))[None]


OPERATIONS = (
    Operation(
        name="LinearRecurrence",
        doc="h <- a h + x, or, max-plus, h <- max(a + h, x), element by element, along each sequence",
        inputs=(Input("x", "[1, T, D]"), Input("a", "[1, T, D]")),
        outputs=(Output("h", "[1, T, D]"),),
        attributes=LinearRecurrenceAttributes,
        infer=_infer,
        reference=_reference,
        traits=Traits(is_stateful=True),
        is_traced=True,
        state=_state,
    ),
)
