"""RotaryEmbedding on the GPU."""

from dataclasses import dataclass

import onnx_ir as ir

from ....builder.lowering.dims import Symbol
from ....builder.lowering.facts import Unsupported
from ....builder.lowering.kernels import Kernel
from ....builder.lowering.lowering import Lowering
from ....builder.lowering.nodes import parsed, path_of
from ....builder.lowering.views import View
from ....builder.targets.cuda.source.call import Context, CudaCall, Launch, tiles
from ..reference import RotaryStyle
from .rotary import rotary_kernel


@dataclass
class RotaryCall(CudaCall):
    """y [T, H, D] = x with its first `rotary_dim` elements rotated by cos and sin [T, C]; y may be x."""

    x: View
    cos: View
    sin: View
    y: View
    style: RotaryStyle
    rotary_dim: int
    cos_stride: int

    def reads(self) -> list[View]:
        return [self.x, self.cos, self.sin]

    def writes(self) -> list[View]:
        return [self.y]

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


def _lower(lowering: Lowering, node: ir.Node) -> None:
    (x, cos, sin), attributes = parsed(node)
    values = lowering.values
    view = values.view(x)
    tables = [values.matrix(values.view(value)) for value in (cos, sin)]
    if any(table.shape[0].symbol is not Symbol.TOKENS for table in tables):
        raise Unsupported("its angles are not one row a token")
    heads = values.heads(view)
    out = node.outputs[0]
    # Threads read one another's pairs where those lie elsewhere afterwards.
    keeps_pairs = attributes.style is not RotaryStyle.GPTJ_TO_NEOX
    in_place = keeps_pairs and heads.buffer is view.buffer and lowering.liveness.may_overwrite(x, node)
    target = view if in_place else values.new(out)
    call = RotaryCall(
        name=path_of(node),
        x=heads,
        cos=tables[0],
        sin=tables[1],
        y=heads if in_place else values.heads(target),
        style=attributes.style,
        rotary_dim=attributes.rotary_dim,
        cos_stride=attributes.cos_stride,
    )
    values.emit(call)
    values.assign(out, target)


KERNELS = (Kernel("RotaryEmbedding", _lower),)
