"""LinearAttention on the CPU."""

from dataclasses import dataclass

from ....builder.lowering.views import View
from ....builder.targets.cpu.source.call import CpuCall
from ....builder.targets.cpu.source.spelling import float_literal
from ....builder.targets.cpu.source.writer import Writer
from ..lower import LinearAttention, kernels


@dataclass
class LinearAttentionCall(LinearAttention, CpuCall):
    """es::LinearAttention."""

    header = "linear_attention/cpu/linear_attention.h"

    def write(self, out: Writer) -> None:
        _, key_heads, key_width = self.k.shape
        _, heads, width = self.v.shape
        decay = "kNone" if self.decay is None else "kHead" if self.decay.shape[-1].is_one else "kChannel"
        kind = (
            f"es::LinearAttention<{heads.count}, {key_heads.count}, {key_width.count}, {width.count}, "
            f"es::Decay::{decay}, {_bool(self.beta is not None)}, {_bool(self.norm_epsilon > 0)}>"
        )

        def heads_of(view: View | None) -> str:
            return "{nullptr, 0, 0}" if view is None else out.heads(view)

        inputs = ", ".join(heads_of(view) for view in (self.q, self.k, self.v, self.decay, self.beta, self.out))
        numbers = f"{float_literal(self.scale)}, {float_literal(self.norm_epsilon)}"
        out.add(f"  {kind}::run(pool, {{{inputs}, {numbers}}}, {out.states(self.state)}, state_step);")


def _bool(value: bool) -> str:
    return "true" if value else "false"


KERNELS = kernels(LinearAttentionCall)
