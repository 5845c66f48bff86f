"""Norms as calls, for any target: RMSNorm, SkipRMSNorm, SkipLayerNorm, and ONNX's LayerNormalization."""

from dataclasses import dataclass
from functools import partial

import onnx_ir as ir

from ...builder.lowering.facts import Unsupported, product
from ...builder.lowering.kernels import Kernel
from ...builder.lowering.lowering import Lowering
from ...builder.lowering.nodes import float_attribute, int_attribute, parsed, path_of, required
from ...builder.lowering.program import Call
from ...builder.lowering.views import View


@dataclass
class Norm(Call):
    """Norms of x [T, H, D] over D; with `skip`, x and skip are [T, D], and total = x + skip is written, too."""

    is_centred: bool
    x: View
    skip: View | None
    weight: View | None
    bias: View | None
    epsilon: float
    y: View
    total: View | None

    def reads(self) -> list[View]:
        return [view for view in (self.x, self.skip, self.weight, self.bias) if view is not None]

    def writes(self) -> list[View]:
        return [view for view in (self.y, self.total) if view is not None]


def kernels(call: type[Norm]) -> tuple[Kernel, ...]:
    """The kernels of a target, whose calls are made by `call`."""
    return (
        Kernel("RMSNorm", partial(_rms_norm, call)),
        Kernel("SkipRMSNorm", partial(_skip_rms_norm, call)),
        Kernel("SkipLayerNorm", partial(_skip_layer_norm, call)),
        Kernel("LayerNormalization", partial(_layer_norm, call), domain=""),
    )


def _rms_norm(call: type[Norm], lowering: Lowering, node: ir.Node) -> None:
    (x, weight), attributes = parsed(node)
    scale = lowering.weights.optional_view(weight, add=attributes.offset)
    _emit_norm(call, lowering, node, False, x, scale, None, attributes.epsilon)


def _layer_norm(call: type[Norm], lowering: Lowering, node: ir.Node) -> None:
    x, (weight, bias) = required(node, 0), [*node.inputs, None][1:3]
    rank = len(lowering.facts.shape(x))
    if int_attribute(node, "axis", -1) % rank != rank - 1:
        raise Unsupported("normalization over more than the last axis")
    if any(out.consumers() for out in node.outputs[1:]):
        raise Unsupported("the mean and deviation of a normalization as outputs")
    scale, shift = (lowering.weights.optional_view(value) for value in (weight, bias))
    _emit_norm(call, lowering, node, True, x, scale, shift, float_attribute(node, "epsilon", 1e-5))


def _emit_norm(
    call: type[Norm],
    lowering: Lowering,
    node: ir.Node,
    is_centred: bool,
    x: ir.Value,
    weight: View | None,
    bias: View | None,
    epsilon: float,
) -> None:
    out, values = node.outputs[0], lowering.values
    heads = values.heads(values.view(x))
    for view in (weight, bias):
        if view is not None and product(view.shape).count != heads.shape[2].count:
            raise Unsupported(f"a norm over {heads.shape[2]} elements whose weight has {product(view.shape)}")
    y = values.new(out)
    values.emit(call(path_of(node), is_centred, heads, None, weight, bias, epsilon, values.heads(y), None))
    values.assign(out, y)


def _skip_rms_norm(call: type[Norm], lowering: Lowering, node: ir.Node) -> None:
    (x, skip, weight), attributes = parsed(node)
    views = lowering.values.view(x), lowering.values.view(skip)
    scale = lowering.weights.optional_view(weight, add=attributes.offset)
    _emit_skip_norm(call, lowering, node, False, views, scale, None, attributes.epsilon)


def _skip_layer_norm(call: type[Norm], lowering: Lowering, node: ir.Node) -> None:
    (x, skip, weight, bias), attributes = parsed(node)
    views = lowering.values.view(x), lowering.values.view(skip)
    scale, shift = (lowering.weights.optional_view(value) for value in (weight, bias))
    _emit_skip_norm(call, lowering, node, True, views, scale, shift, attributes.epsilon)


def _emit_skip_norm(
    call: type[Norm],
    lowering: Lowering,
    node: ir.Node,
    is_centred: bool,
    inputs: tuple[View, View],
    weight: View | None,
    bias: View | None,
    epsilon: float,
) -> None:
    values = lowering.values
    x, skip = (values.matrix(view) for view in inputs)
    y, total = (values.new(out) for out in node.outputs[:2])
    matrices = values.matrix(y), values.matrix(total)
    values.emit(call(path_of(node), is_centred, x, skip, weight, bias, epsilon, *matrices))
    for out, view in zip(node.outputs, (y, total), strict=False):
        values.assign(out, view)
