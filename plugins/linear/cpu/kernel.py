"""Linear on the CPU."""

from dataclasses import dataclass

from ....builder.lowering.program import LinearWeight, Tactic
from ....builder.targets.cpu.source.call import CpuCall
from ....builder.targets.cpu.source.spelling import float_literal, largest, size
from ....builder.targets.cpu.source.writer import Writer
from ...cpu.isa import Isa
from ..activation_function import ActivationFunction
from ..lower import Linear, kernels
from .packing import layout_of_weight


@dataclass
class LinearCall(Linear, CpuCall):
    """es::linear."""

    header = "linear/cpu/linear.h"

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


def matrix_tactic(kind: str, node: str, weight: LinearWeight, isa: Isa) -> Tactic:
    types = template_arguments(weight, isa).removeprefix("es::")
    return Tactic(node, f"{kind}<{types}> ({isa})", layout_of_weight(weight, isa).report())


KERNELS = kernels(LinearCall)
