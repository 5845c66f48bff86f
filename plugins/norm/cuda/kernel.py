"""RMSNorm, SkipRMSNorm, SkipLayerNorm, and ONNX's LayerNormalization, on the GPU."""

from dataclasses import dataclass

from ....builder.lowering.dims import Dim
from ....builder.lowering.views import View
from ....builder.targets.cuda.source.call import Context, CudaCall, Launch, counted, tiles
from ..lower import Norm, kernels
from .norm import norm_kernel

_BLOCK_ELEMENTS = 1024  # of the rows that a program takes, where they are short


@dataclass
class NormCall(Norm, CudaCall):
    """norm_kernel."""

    def launches(self, context: Context) -> list[Launch]:
        x, y = (heads if len(heads.shape) == 3 else _one_head(heads) for heads in (self.x, self.y))
        tokens, heads, width = x.shape
        block = 1 << (width.count - 1).bit_length()
        block_rows = max(1, _BLOCK_ELEMENTS // block)
        units, times = counted(tokens, heads.count)
        constants = {
            "EPSILON": self.epsilon,
            "CENTRED": self.is_centred,
            "HEADS": heads.count,
            "WIDTH": width.count,
            "X_TOKEN": x.strides[0],
            "X_HEAD": x.strides[1],
            "SKIP_TOKEN": 0 if self.skip is None else self.skip.strides[0],
            "Y_TOKEN": y.strides[0],
            "Y_HEAD": y.strides[1],
            "TOTAL_TOKEN": 0 if self.total is None else self.total.strides[0],
            "BLOCK": block,
            "BLOCK_ROWS": block_rows,
        }
        pointers = {"x": x, "skip": self.skip, "weight": self.weight, "bias": self.bias, "y": y, "total": self.total}
        rows = Dim(tokens.count * heads.count, tokens.symbol)
        num_warps = min(max(block * block_rows // 512, 1), 16)
        grid = (tiles(rows, block_rows),)
        return [Launch(norm_kernel, pointers | units, grid, constants | times, num_warps=num_warps)]


def _one_head(view: View) -> View:
    """[T, D] as [T, 1, D]."""
    tokens, width = view.shape
    return View(view.buffer, (tokens, Dim(1), width), (view.strides[0], 0, view.strides[1]), view.offset)


KERNELS = kernels(NormCall)
