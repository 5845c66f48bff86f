"""GatedMLP as a call, for any target."""

from dataclasses import dataclass
from functools import partial

import onnx_ir as ir

from ...builder.lowering.kernels import Kernel
from ...builder.lowering.lowering import Lowering
from ...builder.lowering.nodes import parsed, path_of
from ...builder.lowering.program import LinearWeight
from ...builder.lowering.program_weights import ProgramWeights
from ...builder.lowering.views import View
from ..linear.lower import MatrixProduct


@dataclass
class GatedMlp(MatrixProduct):
    """y [M, N] = act(x Wg^T + gate_bias) * (x Wu^T + up_bias)."""

    gate_bias: View | None
    up_bias: View | None

    def reads(self) -> list[View]:
        return [view for view in (self.x, self.gate_bias, self.up_bias) if view is not None]


def kernels(call: type[GatedMlp]) -> tuple[Kernel, ...]:
    """The kernels of a target, whose calls are made by `call`."""
    return (Kernel("GatedMLP", partial(_lower, call)),)


def _lower(call: type[GatedMlp], lowering: Lowering, node: ir.Node) -> None:
    (x, _, _, gate_bias, up_bias), attributes = parsed(node)
    values, weights, out = lowering.values, lowering.weights, node.outputs[0]
    rows = values.matrix(values.view(x))
    y = values.new(out)
    made = call(
        name=path_of(node),
        x=rows,
        weight=weight_of(weights, node),
        gate_bias=weights.optional_view(gate_bias),
        up_bias=weights.optional_view(up_bias),
        activation=attributes.activation,
        y=values.matrix(y),
        rows=rows.shape[0],
    )
    made.allocate(values)
    values.emit(made)
    values.assign(out, y)


def weight_of(weights: ProgramWeights, node: ir.Node) -> LinearWeight:
    """Gate and up of a node, in the scheme that its layer gets."""
    (_, gate, up, *_), _ = parsed(node)
    return weights.linear([weights.matrix(gate), weights.matrix(up)])
