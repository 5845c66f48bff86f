"""Experts on the CPU."""

from dataclasses import dataclass

from ....builder.lowering.program import Tactic
from ....builder.targets.cpu.source.call import CpuCall
from ....builder.targets.cpu.source.spelling import float_literal, largest, size
from ....builder.targets.cpu.source.writer import Writer
from ...cpu.isa import Isa
from ...linear.cpu.kernel import functor
from ...linear.cpu.packing import layout_of_weight
from ..lower import Experts, kernels


@dataclass
class ExpertsCall(Experts, CpuCall):
    """es::Experts."""

    header = "experts/cpu/experts.h"

    def tactic(self, isa: Isa) -> Tactic:
        up, down = (layout_of_weight(weight, isa) for weight in (self.up, self.down))
        types = ", ".join(dict.fromkeys(layout.cpp_type.removeprefix("es::") for layout in (up, down)))
        sizes = f"{self.up.active} of {self.up.count}, {self.up.n}, {self.up.k}"
        return Tactic(self.name, f"experts<{types}, {sizes}> ({isa})", up.report())

    def write(self, out: Writer) -> None:
        up, down = (layout_of_weight(weight, out.isa) for weight in (self.up, self.down))
        gated = "true" if up.gated else "false"
        name = out.alias(
            "Experts",
            f"es::Experts<{up.cpp_type}, {down.cpp_type}, {functor(self.attributes.activation)}, {gated}, "
            f"{self.up.count}, {self.up.active}, {up.k}, {up.n}>",
        )
        biases = ", ".join(out.at_or_null(bias) for bias in self.biases)
        factors = f"{float_literal(self.attributes.limit)}, {float_literal(self.attributes.up_offset)}"
        out.need_scratch(f"{name}::scratch_bytes({largest(self.rows)})")
        out.add(
            f"  {name}::run(pool, {{w + {self.up.offset}, w + {self.down.offset}, {biases}, {factors}}}, "
            f"{out.rows(self.x)}, {out.at(self.indices)}, {self.indices.strides[0]}, {out.rows(self.weights)}, "
            f"{out.rows(self.y)}, {size(self.rows)}, scratch);"
        )


KERNELS = kernels(ExpertsCall)
