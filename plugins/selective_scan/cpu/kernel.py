"""SelectiveScan on the CPU."""

from dataclasses import dataclass

from ....builder.targets.cpu.source.call import CpuCall
from ....builder.targets.cpu.source.writer import Writer
from ..lower import SelectiveScan, kernels


@dataclass
class SelectiveScanCall(SelectiveScan, CpuCall):
    """es::SelectiveScan."""

    header = "selective_scan/cpu/selective_scan.h"

    def write(self, out: Writer) -> None:
        size, channels = (dim.count for dim in self.A.shape)
        before, after = (", ".join(map(out.rows, views)) for views in ((self.u, self.dt), (self.B, self.C, self.y)))
        out.add(
            f"  es::SelectiveScan<{channels}, {size}>::run(pool, {{{before}, {out.at(self.A)}, {after}}}, "
            f"{out.states(self.state)}, state_step);"
        )


KERNELS = kernels(SelectiveScanCall)
