"""GatedMLP on the CPU."""

from dataclasses import dataclass

from ....builder.lowering.program import Tactic
from ....builder.targets.cpu.source.call import CpuCall
from ....builder.targets.cpu.source.spelling import largest, size
from ....builder.targets.cpu.source.writer import Writer
from ...cpu.isa import Isa
from ...linear.cpu.kernel import functor, input_scale, matrix_tactic, template_arguments
from ..lower import GatedMlp, kernels


@dataclass
class GatedMlpCall(GatedMlp, CpuCall):
    """es::gated_mlp."""

    header = "gated_mlp/cpu/gated_mlp.h"

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


KERNELS = kernels(GatedMlpCall)
