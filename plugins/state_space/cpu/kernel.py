"""StateSpaceScan on the CPU."""

from dataclasses import dataclass

from ....builder.targets.cpu.source.call import CpuCall
from ....builder.targets.cpu.source.spelling import float_literal
from ....builder.targets.cpu.source.writer import Writer
from ..lower import StateSpace, kernels


@dataclass
class StateSpaceCall(StateSpace, CpuCall):
    """es::StateSpace."""

    header = "state_space/cpu/state_space.h"

    def write(self, out: Writer) -> None:
        heads, width, size = self.state.shape
        groups, softplus = self.b.shape[1].count, "true" if self.softplus else "false"
        name = out.alias("StateSpace", f"es::StateSpace<{heads}, {width}, {groups}, {size}>")
        inputs = ", ".join(out.heads(view) for view in (self.x, self.b, self.c))
        out.add(
            f"  {name}::run(pool, {{{inputs}, {out.heads(self.y)}, {out.rows(self.dt)}, {out.at(self.a)}, "
            f"{out.at_or_null(self.d)}, {out.at_or_null(self.dt_bias)}, {softplus}, {float_literal(self.dt_min)}, "
            f"{float_literal(self.dt_max)}}}, {out.states(self.state)}, state_step);"
        )


KERNELS = kernels(StateSpaceCall)
