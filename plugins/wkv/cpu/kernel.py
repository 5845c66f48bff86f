"""Wkv on the CPU."""

from dataclasses import dataclass

from ....builder.targets.cpu.source.call import CpuCall
from ....builder.targets.cpu.source.writer import Writer
from ..lower import Wkv, kernels


@dataclass
class WkvCall(Wkv, CpuCall):
    """es::Wkv."""

    header = "wkv/cpu/wkv.h"

    def write(self, out: Writer) -> None:
        weights = ", ".join(map(out.at, (self.w, self.u)))
        rows = ", ".join(map(out.rows, (self.k, self.v, self.y)))
        kind = f"es::Wkv<{self.k.shape[-1].count}>"
        out.add(f"  {kind}::run(pool, {{{weights}, {rows}}}, {out.states(self.state)}, state_step);")


KERNELS = kernels(WkvCall)
