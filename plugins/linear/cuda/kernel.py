"""Linear on the GPU."""

from dataclasses import dataclass, field

import onnx_ir as ir

from ....builder.lowering.dims import Dim
from ....builder.lowering.kernels import Kernel
from ....builder.lowering.lowering import Lowering
from ....builder.lowering.nodes import int_attribute, parsed, path_of
from ....builder.lowering.program import LinearWeight
from ....builder.lowering.views import View
from ....builder.lowering.work import Work
from ....builder.passes.head import makes_logits
from ....builder.targets.cuda.source.call import Context, CudaCall, Launch
from ..activation_function import ActivationFunction
from .launches import Finish, Scratch, matrix_launches, matrix_work, rounds_inputs, scratch_of


@dataclass
class LinearCall(CudaCall):
    """y [M, N] = act(x W^T + bias) + residual."""

    x: View
    weight: LinearWeight
    bias: View | None
    residual: View | None
    activation: ActivationFunction
    y: View
    rows: Dim
    scratch: Scratch = field(default_factory=Scratch)

    def reads(self) -> list[View]:
        return [view for view in (self.x, self.bias, self.residual) if view is not None]

    def bf16_reads(self) -> list[View]:
        return [self.x] if rounds_inputs(self.weight) else []

    def writes(self) -> list[View]:
        return [self.y, *self.scratch.views]

    def work(self) -> Work:
        return matrix_work(self.weight, self.rows)

    def launches(self, context: Context) -> list[Launch]:
        finish = Finish(self.bias, None, self.residual, self.y, self.activation)
        return matrix_launches(self.weight, self.x, self.rows, finish, self.scratch, context)


def _lower(lowering: Lowering, node: ir.Node) -> None:
    (x, weight, bias, residual), attributes = parsed(node)
    values, weights, out = lowering.values, lowering.weights, node.outputs[0]
    rows = values.matrix(values.view(x))
    transposed = bool(attributes.transposed)
    packed = weights.linear([weights.matrix(weight)], transposed=transposed, is_head=makes_logits(out))
    y = values.new(out)
    call = LinearCall(
        name=path_of(node),
        x=rows,
        weight=packed,
        bias=weights.optional_view(bias),
        residual=None if residual is None else values.matrix(values.view(residual).expand(y.shape)),
        activation=attributes.activation,
        y=values.matrix(y),
        rows=rows.shape[0],
        scratch=scratch_of(values, packed, rows.shape[0]),
    )
    values.emit(call)
    values.assign(out, y)


def head_of(lowering: Lowering, weight: ir.Value) -> LinearWeight | None:
    """The packed form of a weight that makes the logits, whether or not that layer is lowered by now; else None."""
    for node in weight.consumers():
        is_weight = node.op_type == "Linear" and node.inputs[1] is weight and not int_attribute(node, "transposed", 0)
        if is_weight and node in lowering.liveness.needed and makes_logits(node.outputs[0]):
            return lowering.weights.linear([weight], is_head=True)
    return None


KERNELS = (Kernel("Linear", _lower),)
