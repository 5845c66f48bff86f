"""GatedMLP on the CPU."""

from dataclasses import dataclass

import onnx_ir as ir

from ....builder.lowering.dims import Dim
from ....builder.lowering.kernels import Kernel
from ....builder.lowering.lowering import Lowering
from ....builder.lowering.nodes import parsed, path_of
from ....builder.lowering.program import LinearWeight, Tactic
from ....builder.lowering.views import View
from ....builder.lowering.work import Work
from ....builder.targets.cpu.source.call import CpuCall
from ....builder.targets.cpu.source.spelling import largest, size
from ....builder.targets.cpu.source.writer import Writer
from ...cpu.isa import Isa
from ...linear.activation_function import ActivationFunction
from ...linear.cpu.kernel import functor, input_scale, matrix_tactic, matrix_work, template_arguments


@dataclass
class GatedMlpCall(CpuCall):
    """y [M, N] = act(x Wg^T + gate_bias) * (x Wu^T + up_bias)."""

    x: View
    weight: LinearWeight
    gate_bias: View | None
    up_bias: View | None
    activation: ActivationFunction
    y: View
    rows: Dim

    header = "gated_mlp/cpu/gated_mlp.h"

    def reads(self) -> list[View]:
        return [view for view in (self.x, self.gate_bias, self.up_bias) if view is not None]

    def writes(self) -> list[View]:
        return [self.y]

    def work(self) -> Work:
        return matrix_work(self.weight, self.rows)

    def tactic(self, isa: Isa) -> Tactic:
        return matrix_tactic("gated_mlp", self.name, self.weight, isa)

    def write(self, out: Writer) -> None:
        types = template_arguments(self.weight, out.isa)
        out.need_scratch(f"es::gated_mlp_scratch_bytes<{types}>({largest(self.rows)}, threads)")
        out.add(
            f"  es::gated_mlp<{types}, {functor(self.activation)}>(pool, w + {self.weight.offset}, "
            f"{out.rows(self.x)}, {out.at_or_null(self.gate_bias)}, {out.at_or_null(self.up_bias)}, "
            f"{out.rows(self.y)}, {size(self.rows)}, scratch{input_scale(self.weight)});"
        )


def _lower(lowering: Lowering, node: ir.Node) -> None:
    (x, gate, up, gate_bias, up_bias), attributes = parsed(node)
    values, weights, out = lowering.values, lowering.weights, node.outputs[0]
    rows = values.matrix(values.view(x))
    y = values.new(out)
    call = GatedMlpCall(
        name=path_of(node),
        x=rows,
        weight=weights.linear([weights.matrix(gate), weights.matrix(up)]),
        gate_bias=weights.optional_view(gate_bias),
        up_bias=weights.optional_view(up_bias),
        activation=attributes.activation,
        y=values.matrix(y),
        rows=rows.shape[0],
    )
    values.emit(call)
    values.assign(out, y)


KERNELS = (Kernel("GatedMLP", _lower),)
