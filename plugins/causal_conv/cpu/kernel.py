"""CausalConv1D on the CPU."""

from dataclasses import dataclass

from ....builder.targets.cpu.source.call import CpuCall
from ....builder.targets.cpu.source.writer import Writer
from ..lower import CausalConv, kernels
from ..op import Activation


@dataclass
class CausalConvCall(CausalConv, CpuCall):
    """es::causal_conv1d."""

    header = "causal_conv/cpu/causal_conv.h"

    def write(self, out: Writer) -> None:
        width, channels = (dim.count for dim in self.weight.shape)
        silu = "true" if self.activation is Activation.SILU else "false"
        out.add(
            f"  es::causal_conv1d<{channels}, {width}, {silu}>(pool, {out.rows(self.x)}, {out.at(self.weight)}, "
            f"{out.at_or_null(self.bias)}, {out.rows(self.y)}, {out.states(self.state)}, state_step);"
        )


KERNELS = kernels(CausalConvCall)
