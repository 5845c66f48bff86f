"""RotaryEmbedding on the CPU."""

from dataclasses import dataclass

from ....builder.targets.cpu.source.call import CpuCall
from ....builder.targets.cpu.source.spelling import size
from ....builder.targets.cpu.source.writer import Writer
from ..lower import Rotary, kernels


@dataclass
class RotaryCall(Rotary, CpuCall):
    """es::rotary."""

    header = "rotary/cpu/rotary.h"

    def write(self, out: Writer) -> None:
        tokens, heads, width = self.x.shape
        style = "k" + "".join(word.capitalize() for word in self.style.split("_"))
        out.add(
            f"  es::rotary<es::RotaryStyle::{style}, {heads.count}, {width.count}, {self.rotary_dim}, "
            f"{self.cos_stride}>(pool, {out.heads(self.x)}, {out.rows(self.cos)}, {out.rows(self.sin)}, "
            f"{out.heads(self.y)}, {size(tokens)});"
        )


KERNELS = kernels(RotaryCall)
