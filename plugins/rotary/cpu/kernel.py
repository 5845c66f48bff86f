"""RotaryEmbedding on the CPU."""

from dataclasses import dataclass

import onnx_ir as ir

from ....builder.lowering.dims import Symbol
from ....builder.lowering.facts import Unsupported
from ....builder.lowering.kernels import Kernel
from ....builder.lowering.lowering import Lowering
from ....builder.lowering.nodes import parsed, path_of
from ....builder.lowering.views import View
from ....builder.targets.cpu.source.call import CpuCall
from ....builder.targets.cpu.source.spelling import size
from ....builder.targets.cpu.source.writer import Writer
from ..reference import RotaryStyle


@dataclass
class RotaryCall(CpuCall):
    """y [T, H, D] = x with its first `rotary_dim` elements rotated by cos and sin [T, C]; y may be x."""

    x: View
    cos: View
    sin: View
    y: View
    style: RotaryStyle
    rotary_dim: int
    cos_stride: int

    header = "rotary/cpu/rotary.h"

    def reads(self) -> list[View]:
        return [self.x, self.cos, self.sin]

    def writes(self) -> list[View]:
        return [self.y]

    def write(self, out: Writer) -> None:
        tokens, heads, width = self.x.shape
        style = "k" + "".join(word.capitalize() for word in self.style.split("_"))
        out.add(
            f"  es::rotary<es::RotaryStyle::{style}, {heads.count}, {width.count}, {self.rotary_dim}, "
            f"{self.cos_stride}>(pool, {out.heads(self.x)}, {out.rows(self.cos)}, {out.rows(self.sin)}, "
            f"{out.heads(self.y)}, {size(tokens)});"
        )


def _lower(lowering: Lowering, node: ir.Node) -> None:
    (x, cos, sin), attributes = parsed(node)
    values = lowering.values
    view = values.view(x)
    tables = [values.matrix(values.view(value)) for value in (cos, sin)]
    if any(table.shape[0].symbol is not Symbol.TOKENS for table in tables):
        raise Unsupported("its angles are not one row a token")
    heads = values.heads(view)
    out = node.outputs[0]
    in_place = heads.buffer is view.buffer and lowering.liveness.may_overwrite(x, node)
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
