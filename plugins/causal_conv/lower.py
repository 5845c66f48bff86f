"""CausalConv1D as a call, for any target."""

from dataclasses import dataclass
from functools import partial

import onnx_ir as ir

from ...builder.lowering.kernels import Kernel
from ...builder.lowering.lowering import Lowering, new_state
from ...builder.lowering.nodes import parsed
from ...builder.lowering.program import Call, State
from ...builder.lowering.views import View
from .op import Activation


@dataclass
class CausalConv(Call):
    """x [T, C], weight [K, C], bias [C] -> y [T, C]; the state holds the last K - 1 tokens, [K - 1, C]."""

    x: View
    weight: View
    bias: View | None
    y: View
    activation: Activation
    state: State

    def reads(self) -> list[View]:
        return [view for view in (self.x, self.weight, self.bias) if view is not None]

    def writes(self) -> list[View]:
        return [self.y]


def kernels(call: type[CausalConv]) -> tuple[Kernel, ...]:
    """The kernels of a target, whose calls are made by `call`."""
    return (Kernel("CausalConv1D", partial(_lower, call)),)


def _lower(call: type[CausalConv], lowering: Lowering, node: ir.Node) -> None:
    (x, weight, bias), attributes = parsed(node)
    values, weights, out = lowering.values, lowering.weights, node.outputs[0]
    rows, y, state = values.matrix(values.view(x)), values.new(out), new_state(lowering, node)
    made = call(
        state.name,
        rows,
        weights.plain_view(weight),
        weights.optional_view(bias),
        values.matrix(y),
        attributes.activation,
        state,
    )
    values.emit(made)
    values.assign(out, y)
