"""GatedMLP on the GPU: the matrix kernels of Linear, with a second matrix."""

from dataclasses import dataclass, field

import onnx_ir as ir

from ....builder.lowering.dims import Dim
from ....builder.lowering.kernels import Kernel
from ....builder.lowering.lowering import Lowering
from ....builder.lowering.nodes import parsed, path_of
from ....builder.lowering.program import LinearWeight
from ....builder.lowering.views import View
from ....builder.lowering.work import Work
from ....builder.targets.cuda.source.call import Context, CudaCall, Launch
from ...linear.activation_function import ActivationFunction
from ...linear.cuda.launches import Finish, Scratch, matrix_launches, matrix_work, rounds_inputs, scratch_of


@dataclass
class GatedMlpCall(CudaCall):
    """y [M, N] = act(x Wg^T + gate_bias) * (x Wu^T + up_bias)."""

    x: View
    weight: LinearWeight
    gate_bias: View | None
    up_bias: View | None
    activation: ActivationFunction
    y: View
    rows: Dim
    scratch: Scratch = field(default_factory=Scratch)

    def reads(self) -> list[View]:
        return [view for view in (self.x, self.gate_bias, self.up_bias) if view is not None]

    def bf16_reads(self) -> list[View]:
        return [self.x] if rounds_inputs(self.weight) else []

    def writes(self) -> list[View]:
        return [self.y, *self.scratch.views]

    def work(self) -> Work:
        return matrix_work(self.weight, self.rows)

    def launches(self, context: Context) -> list[Launch]:
        finish = Finish(self.gate_bias, self.up_bias, None, self.y, self.activation)
        return matrix_launches(self.weight, self.x, self.rows, finish, self.scratch, context)


def _lower(lowering: Lowering, node: ir.Node) -> None:
    (x, gate, up, gate_bias, up_bias), attributes = parsed(node)
    values, weights, out = lowering.values, lowering.weights, node.outputs[0]
    rows = values.matrix(values.view(x))
    packed = weights.linear([weights.matrix(gate), weights.matrix(up)])
    y = values.new(out)
    call = GatedMlpCall(
        name=path_of(node),
        x=rows,
        weight=packed,
        gate_bias=weights.optional_view(gate_bias),
        up_bias=weights.optional_view(up_bias),
        activation=attributes.activation,
        y=values.matrix(y),
        rows=rows.shape[0],
        scratch=scratch_of(values, packed, rows.shape[0]),
    )
    values.emit(call)
    values.assign(out, y)


KERNELS = (Kernel("GatedMLP", _lower),)
