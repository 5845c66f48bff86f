"""Linear as a call, for any target; GatedMLP and embeddings share some of it."""

from dataclasses import dataclass
from functools import partial

import onnx_ir as ir

from ...builder.lowering.dims import Dim, Symbol
from ...builder.lowering.fused_call import FusedCall
from ...builder.lowering.kernels import Kernel
from ...builder.lowering.lowering import Lowering
from ...builder.lowering.nodes import int_attribute, parsed, path_of
from ...builder.lowering.program import LinearWeight
from ...builder.lowering.program_weights import ProgramWeights
from ...builder.lowering.views import View
from ...builder.lowering.work import Work
from ...builder.passes.head import makes_logits
from ...builder.passes.router import is_router
from .activation_function import ActivationFunction


@dataclass
class MatrixProduct(FusedCall):
    """y [M, N], of x [M, K] and a packed weight, or two: what Linear and GatedMLP share."""

    x: View
    weight: LinearWeight
    activation: ActivationFunction
    y: View
    rows: Dim

    def writes(self) -> list[View]:
        return [self.y]

    def work(self) -> Work:
        ops = 2 * self.weight.n * self.weight.k * len(self.weight.sources) * self.rows.count
        return Work(logits_ops=ops) if self.rows.symbol is Symbol.ROWS else Work(token_ops=ops)


@dataclass
class Linear(MatrixProduct):
    """y [M, N] = act(x W^T + bias) + residual."""

    bias: View | None
    residual: View | None

    def reads(self) -> list[View]:
        return [view for view in (self.x, self.bias, self.residual) if view is not None]


def kernels(call: type[Linear]) -> tuple[Kernel, ...]:
    """The kernels of a target, whose calls are made by `call`."""
    return (Kernel("Linear", partial(_lower, call)),)


def _lower(call: type[Linear], lowering: Lowering, node: ir.Node) -> None:
    (x, _, bias, residual), attributes = parsed(node)
    values, weights, out = lowering.values, lowering.weights, node.outputs[0]
    rows = values.matrix(values.view(x))
    packed = weight_of(weights, node)
    y = values.new(out)
    made = call(
        name=path_of(node),
        x=rows,
        weight=packed,
        bias=weights.optional_view(bias),
        residual=None if residual is None else values.matrix(values.view(residual).expand(y.shape)),
        activation=attributes.activation,
        y=values.matrix(y),
        rows=rows.shape[0],
    )
    made.allocate(values)
    values.emit(made)
    values.assign(out, y)


def weight_of(weights: ProgramWeights, node: ir.Node) -> LinearWeight:
    """The weight of a node, in the scheme that its layer gets."""
    (_, weight, *_), attributes = parsed(node)
    out = node.outputs[0]
    return weights.linear(
        [weights.matrix(weight)],
        transposed=bool(attributes.transposed),
        is_head=makes_logits(out),
        is_router=is_router(out),
    )


def head_of(lowering: Lowering, weight: ir.Value) -> LinearWeight | None:
    """The packed form of a weight that makes the logits, whether or not that layer is lowered by now; else None."""
    for node in weight.consumers():
        is_weight = node.op_type == "Linear" and node.inputs[1] is weight and not int_attribute(node, "transposed", 0)
        if is_weight and node in lowering.liveness.needed and makes_logits(node.outputs[0]):
            return lowering.weights.linear([weight], is_head=True)
    return None
