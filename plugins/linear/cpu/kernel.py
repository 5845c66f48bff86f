"""Linear on the CPU."""

from dataclasses import dataclass

import onnx_ir as ir

from ....builder.lowering.dims import Dim, Symbol
from ....builder.lowering.kernels import Kernel
from ....builder.lowering.lowering import Lowering
from ....builder.lowering.nodes import int_attribute, parsed, path_of
from ....builder.lowering.program import LinearWeight, Tactic
from ....builder.lowering.views import View
from ....builder.lowering.work import Work
from ....builder.passes.head import makes_logits
from ....builder.passes.router import is_router
from ....builder.targets.cpu.source.call import CpuCall
from ....builder.targets.cpu.source.spelling import float_literal, largest, size
from ....builder.targets.cpu.source.writer import Writer
from ...cpu.isa import Isa
from ..activation_function import ActivationFunction
from .packing import layout_of_weight


@dataclass
class LinearCall(CpuCall):
    """y [M, N] = act(x W^T + bias) + residual."""

    x: View
    weight: LinearWeight
    bias: View | None
    residual: View | None
    activation: ActivationFunction
    y: View
    rows: Dim

    header = "linear/cpu/linear.h"

    def reads(self) -> list[View]:
        return [view for view in (self.x, self.bias, self.residual) if view is not None]

    def writes(self) -> list[View]:
        return [self.y]

    def work(self) -> Work:
        return matrix_work(self.weight, self.rows)

    def tactic(self, isa: Isa) -> Tactic:
        return matrix_tactic("linear", self.name, self.weight, isa)

    def write(self, out: Writer) -> None:
        types = template_arguments(self.weight, out.isa)
        out.need_scratch(f"es::linear_scratch_bytes<{types}>({largest(self.rows)}, threads)")
        out.add(
            f"  es::linear<{types}, {functor(self.activation)}>(pool, w + {self.weight.offset}, {out.rows(self.x)}, "
            f"{out.at_or_null(self.bias)}, {out.rows(self.residual)}, {out.rows(self.y)}, {size(self.rows)}, "
            f"scratch{input_scale(self.weight)});"
        )


def _lower(lowering: Lowering, node: ir.Node) -> None:
    (x, weight, bias, residual), attributes = parsed(node)
    values, weights, out = lowering.values, lowering.weights, node.outputs[0]
    rows = values.matrix(values.view(x))
    transposed = bool(attributes.transposed)
    packed = weights.linear(
        [weights.matrix(weight)], transposed=transposed, is_head=makes_logits(out), is_router=is_router(out)
    )
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


# What GatedMLP shares.


def functor(function: ActivationFunction) -> str:
    """The C++ type: es::QuickGelu."""
    return "es::" + "".join(word.capitalize() for word in (function.value or "identity").split("_"))


def template_arguments(weight: LinearWeight, isa: Isa) -> str:
    layout = layout_of_weight(weight, isa)
    return f"{layout.cpp_type}, {layout.n}, {layout.k}"


def input_scale(weight: LinearWeight) -> str:
    """The last argument, of a weight whose inputs have a static scale."""
    return "" if weight.input_scale is None else f", {float_literal(weight.input_scale)}"


def matrix_work(weight: LinearWeight, rows: Dim) -> Work:
    ops = 2 * weight.n * weight.k * len(weight.sources) * rows.count
    return Work(logits_ops=ops) if rows.symbol is Symbol.ROWS else Work(token_ops=ops)


def matrix_tactic(kind: str, node: str, weight: LinearWeight, isa: Isa) -> Tactic:
    types = template_arguments(weight, isa).removeprefix("es::")
    return Tactic(node, f"{kind}<{types}> ({isa})", layout_of_weight(weight, isa).report())


KERNELS = (Kernel("Linear", _lower),)
