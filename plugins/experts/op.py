"""The operation Experts: a mixture of experts, from its router's choice to the sum of what the chosen ones compute."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..linear.activation_function import ActivationFunction
from ..plugin import Input, Operation, Output, Sizes, Traits
from .gate import Gate
from .reference import experts


@dataclass(frozen=True)
class ExpertsAttributes:
    """See gate.Gate."""

    activation: ActivationFunction = ActivationFunction.SILU
    limit: float = 0.0
    up_offset: float = 0.0


def _infer(shapes: Sequence[Sizes | None], attributes: ExpertsAttributes) -> tuple[Sizes, ...]:
    x, indices, weights, gate, up, down, *biases = [*shapes, *[None] * (9 - len(shapes))]
    if x is None or indices is None or len(x) != 2 or len(indices) != 2 or indices[0] != x[0] or weights != indices:
        raise ValueError(f"Experts needs x [T, H], indices and weights [T, k], not {x}, {indices} and {weights}")
    if up is None or down is None or len(up) != 3 or down != (up[0], up[2], up[1]) or gate not in (None, up):
        raise ValueError(f"Experts needs gate and up [E, I, H] and down [E, H, I], not {gate}, {up} and {down}")
    count, inner, hidden = up
    if x[1] != hidden:
        raise ValueError(f"Experts: x {x} ends in {x[1]}, the weights {up} take {hidden}")
    for bias, size in zip(biases, (inner, inner, hidden), strict=True):
        if bias not in (None, (count, size)):
            raise ValueError(f"Experts: a bias of shape {bias} for {count} experts of {size} outputs")
    return (x,)


def _reference(*inputs: np.ndarray | None, attributes: ExpertsAttributes) -> np.ndarray:
    function = Gate(attributes.activation, attributes.limit, attributes.up_offset, gated=inputs[3] is not None)
    return experts(*inputs, function=function)  # type: ignore[arg-type]


OPERATIONS = (
    Operation(
        name="Experts",
        doc="the weighted sum of what a token's experts compute: "
        "(act(min(x Wg^T + bg, limit)) * (clamp(x Wu^T + bu, -limit, limit) + up_offset)) Wd^T + bd; "
        "act(x Wu^T + bu) Wd^T + bd without a gate; a limit of 0 is none",
        inputs=(
            Input("x", "[T, H]"),
            Input("indices", "[T, k]"),
            Input("weights", "[T, k]"),
            Input("gate_weight", "[E, I, H]", optional=True),
            Input("up_weight", "[E, I, H]"),
            Input("down_weight", "[E, H, I]"),
            Input("gate_bias", "[E, I]", optional=True),
            Input("up_bias", "[E, I]", optional=True),
            Input("down_bias", "[E, H]", optional=True),
        ),
        outputs=(Output("y", "[T, H]"),),
        attributes=ExpertsAttributes,
        infer=_infer,
        reference=_reference,
        traits=Traits(row_inputs=(0, 1, 2), is_matmul=True),
        is_traced=True,
    ),
)
