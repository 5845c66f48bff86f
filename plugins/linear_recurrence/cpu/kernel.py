"""LinearRecurrence on the CPU."""

from dataclasses import dataclass

from ....builder.targets.cpu.source.call import CpuCall
from ....builder.targets.cpu.source.writer import Writer
from ..lower import LinearRecurrence, kernels


@dataclass
class LinearRecurrenceCall(LinearRecurrence, CpuCall):
    """es::LinearRecurrence."""

    header = "linear_recurrence/cpu/linear_recurrence.h"

    def write(self, out: Writer) -> None:
        rows = ", ".join(map(out.rows, (self.x, self.a, self.h)))
        kind = f"es::LinearRecurrence<{self.x.shape[-1].count}, {'true' if self.max_plus else 'false'}>"
        out.add(f"  {kind}::run(pool, {{{rows}}}, {out.states(self.state)}, state_step);")


KERNELS = kernels(LinearRecurrenceCall)
