"""The operation Linear: a matrix product with everything that is done to its result."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..plugin import Input, Operation, Output, Sizes, Traits
from .activation_function import ActivationFunction
from .reference import linear


@dataclass(frozen=True)
class LinearAttributes:
    """`transposed` 1: the weight is [K, N]."""

    activation: ActivationFunction = ActivationFunction.NONE
    transposed: int = 0


def _infer(shapes: Sequence[Sizes | None], attributes: LinearAttributes) -> tuple[Sizes, ...]:
    x, weight, *others = shapes
    if x is None or weight is None or len(weight) != 2:
        raise ValueError(f"Linear needs x [..., K] and a weight of two dimensions, not {x} and {weight}")
    n, k = reversed(weight) if attributes.transposed else weight
    if not x or x[-1] != k:
        raise ValueError(f"Linear: x {x} ends in {x[-1] if x else 'nothing'}, the weight {weight} takes {k}")
    y = (*x[:-1], n)
    bias, residual = [*others, None, None][:2]
    if bias is not None and bias != (n,):
        raise ValueError(f"Linear: a bias of shape {bias} for {n} outputs")
    if residual is not None and residual != y:
        raise ValueError(f"Linear: a residual of shape {residual} for a result of shape {y}")
    return (y,)


def _reference(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    residual: np.ndarray | None = None,
    *,
    attributes: LinearAttributes,
) -> np.ndarray:
    return linear(x, weight, bias, residual, activation=attributes.activation, transposed=bool(attributes.transposed))


OPERATIONS = (
    Operation(
        name="Linear",
        doc="act(x W^T + bias) + residual, for every weight scheme",
        inputs=(
            Input("x", "[..., K]"),
            Input("weight", "[N, K]; [K, N] if transposed"),
            Input("bias", "[N]", optional=True),
            Input("residual", "[..., N]", optional=True),
        ),
        outputs=(Output("y", "[..., N]"),),
        attributes=LinearAttributes,
        infer=_infer,
        reference=_reference,
        traits=Traits(row_inputs=(0, 3), is_matmul=True, scale_inputs=(1, 2)),
        is_traced=True,
    ),
)
