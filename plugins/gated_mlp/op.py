"""The operation GatedMLP: the gate and up projections of an MLP and their product; the down projection is a Linear."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..linear.activation_function import ActivationFunction
from ..plugin import Input, Operation, Output, Sizes, Traits
from .reference import gated_mlp


@dataclass(frozen=True)
class GatedMlpAttributes:
    """`activation` is applied to the gate."""

    activation: ActivationFunction = ActivationFunction.SILU


def _infer(shapes: Sequence[Sizes | None], attributes: GatedMlpAttributes) -> tuple[Sizes, ...]:
    x, gate, up, *biases = shapes
    if x is None or not x or gate is None or len(gate) != 2 or gate != up:
        raise ValueError(f"GatedMLP needs x [..., K] and two weights [N, K], not {x}, {gate} and {up}")
    n, k = gate
    if x[-1] != k:
        raise ValueError(f"GatedMLP: x {x} ends in {x[-1]}, the weights {gate} take {k}")
    for bias in biases:
        if bias is not None and bias != (n,):
            raise ValueError(f"GatedMLP: a bias of shape {bias} for {n} outputs")
    return ((*x[:-1], n),)


def _reference(
    x: np.ndarray,
    gate_weight: np.ndarray,
    up_weight: np.ndarray,
    gate_bias: np.ndarray | None = None,
    up_bias: np.ndarray | None = None,
    *,
    attributes: GatedMlpAttributes,
) -> np.ndarray:
    return gated_mlp(x, gate_weight, up_weight, gate_bias, up_bias, activation=attributes.activation)


OPERATIONS = (
    Operation(
        name="GatedMLP",
        doc="act(x Wg^T + bg) * (x Wu^T + bu)",
        inputs=(
            Input("x", "[..., K]"),
            Input("gate_weight", "[N, K]"),
            Input("up_weight", "[N, K]"),
            Input("gate_bias", "[N]", optional=True),
            Input("up_bias", "[N]", optional=True),
        ),
        outputs=(Output("y", "[..., N]"),),
        attributes=GatedMlpAttributes,
        infer=_infer,
        reference=_reference,
        traits=Traits(row_inputs=(0,), is_matmul=True),
    ),
)
