"""RotaryEmbedding as a call, for any target."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import onnx_ir as ir

from ...builder.lowering.dims import Symbol
from ...builder.lowering.facts import Unsupported
from ...builder.lowering.kernels import Kernel
from ...builder.lowering.lowering import Lowering
from ...builder.lowering.nodes import parsed, path_of
from ...builder.lowering.program import Call
from ...builder.lowering.views import View
from .reference import RotaryStyle


@dataclass
class Rotary(Call):
    """y [T, H, D] = x with its first `rotary_dim` elements rotated by cos and sin [T, C]; y may be x."""

    x: View
    cos: View
    sin: View
    y: View
    style: RotaryStyle
    rotary_dim: int
    cos_stride: int

    not_in_place: ClassVar[frozenset[RotaryStyle]] = frozenset()
    """Styles for which the target's kernel needs a y beside x."""

    def reads(self) -> list[View]:
        return [self.x, self.cos, self.sin]

    def writes(self) -> list[View]:
        return [self.y]


def kernels(call: type[Rotary]) -> tuple[Kernel, ...]:
    """The kernels of a target, whose calls are made by `call`."""
    return (Kernel("RotaryEmbedding", partial(_lower, call)),)


def _lower(call: type[Rotary], lowering: Lowering, node: ir.Node) -> None:
    (x, cos, sin), attributes = parsed(node)
    values = lowering.values
    view = values.view(x)
    tables = [values.matrix(values.view(value)) for value in (cos, sin)]
    if any(table.shape[0].symbol is not Symbol.TOKENS for table in tables):
        raise Unsupported("its angles are not one row a token")
    heads = values.heads(view)
    out = node.outputs[0]
    may_be_in_place = attributes.style not in call.not_in_place and heads.buffer is view.buffer
    in_place = may_be_in_place and lowering.liveness.may_overwrite(x, node)
    target = view if in_place else values.new(out)
    values.emit(
        call(
            name=path_of(node),
            x=heads,
            cos=tables[0],
            sin=tables[1],
            y=heads if in_place else values.heads(target),
            style=attributes.style,
            rotary_dim=attributes.rotary_dim,
            cos_stride=attributes.cos_stride,
        )
    )
    values.assign(out, target)
