"""RotaryEmbedding on the GPU."""

from dataclasses import dataclass

from ....builder.targets.cuda.source.call import Context, CudaCall, Launch, tiles
from ..lower import Rotary, kernels
from ..reference import RotaryStyle
from .rotary import rotary_kernel


@dataclass
class RotaryCall(Rotary, CudaCall):
    """rotary_kernel."""

    # Threads read one another's pairs where those lie elsewhere afterwards.
    not_in_place = frozenset({RotaryStyle.GPTJ_TO_NEOX})

    def launches(self, context: Context) -> list[Launch]:
        tokens, heads, width = self.x.shape
        rest = width.count - self.rotary_dim
        constants = {
            "IN_PAIRS": self.style is not RotaryStyle.NEOX,
            "OUT_PAIRS": self.style is RotaryStyle.GPTJ,
            "HEADS": heads.count,
            "WIDTH": width.count,
            "ROTARY_DIM": self.rotary_dim,
            "COPIES": rest > 0 and self.y is not self.x,
            "X_TOKEN": self.x.strides[0],
            "X_HEAD": self.x.strides[1],
            "COS_TOKEN": self.cos.strides[0],
            "SIN_TOKEN": self.sin.strides[0],
            "ANGLE": self.cos_stride,
            "Y_TOKEN": self.y.strides[0],
            "Y_HEAD": self.y.strides[1],
            "BLOCK_HEADS": 1 << (heads.count - 1).bit_length(),
            "BLOCK_PAIRS": 1 << (self.rotary_dim // 2 - 1).bit_length(),
            "BLOCK_REST": 1 << max(rest - 1, 0).bit_length(),
        }
        pointers = {"x": self.x, "cos": self.cos, "sin": self.sin, "y": self.y}
        return [Launch(rotary_kernel, pointers, (tiles(tokens),), constants)]


KERNELS = kernels(RotaryCall)
