"""RMSNorm, SkipRMSNorm, SkipLayerNorm, and ONNX's LayerNormalization, on the CPU."""

from dataclasses import dataclass

import onnx_ir as ir

from ....builder.lowering.dims import Dim
from ....builder.lowering.facts import Unsupported, product
from ....builder.lowering.kernels import Kernel
from ....builder.lowering.lowering import Lowering
from ....builder.lowering.nodes import float_attribute, int_attribute, parsed, path_of, required
from ....builder.lowering.views import View
from ....builder.targets.cpu.source.call import CpuCall
from ....builder.targets.cpu.source.spelling import float_literal, size
from ....builder.targets.cpu.source.writer import Writer


@dataclass
class NormCall(CpuCall):
    """Norms of x [T, H, D] over D. kind: rms_norm, layer_norm, or skip_* (x [T, D]; also writes total = x + skip)."""

    kind: str
    x: View
    skip: View | None
    weight: View | None
    bias: View | None
    epsilon: float
    y: View
    total: View | None
    rows: Dim

    header = "norm/cpu/norm.h"

    def reads(self) -> list[View]:
        return [view for view in (self.x, self.skip, self.weight, self.bias) if view is not None]

    def writes(self) -> list[View]:
        return [view for view in (self.y, self.total) if view is not None]

    def write(self, out: Writer) -> None:
        bias = f"{out.at_or_null(self.bias)}, " if "layer_norm" in self.kind else ""
        scale = f"{out.at_or_null(self.weight)}, {bias}{float_literal(self.epsilon)}"
        if self.skip is not None and self.total is not None:
            views = f"{out.rows(self.x)}, {out.rows(self.skip)}"
            results = f"{out.rows(self.y)}, {out.rows(self.total)}"
            types = str(self.x.shape[1].count)
        else:
            views, results = out.heads(self.x), out.heads(self.y)
            types = f"{self.x.shape[1].count}, {self.x.shape[2].count}"
        out.add(f"  es::{self.kind}<{types}>(pool, {views}, {scale}, {results}, {size(self.rows)});")


def _rms_norm(lowering: Lowering, node: ir.Node) -> None:
    (x, weight), attributes = parsed(node)
    scale = lowering.weights.optional_view(weight, add=attributes.offset)
    _emit_norm(lowering, node, "rms_norm", x, scale, None, attributes.epsilon)


def _layer_norm(lowering: Lowering, node: ir.Node) -> None:
    x, (weight, bias) = required(node, 0), [*node.inputs, None][1:3]
    rank = len(lowering.facts.shape(x))
    if int_attribute(node, "axis", -1) % rank != rank - 1:
        raise Unsupported("normalization over more than the last axis")
    if any(out.consumers() for out in node.outputs[1:]):
        raise Unsupported("the mean and deviation of a normalization as outputs")
    scale, shift = (lowering.weights.optional_view(value) for value in (weight, bias))
    _emit_norm(lowering, node, "layer_norm", x, scale, shift, float_attribute(node, "epsilon", 1e-5))


def _emit_norm(
    lowering: Lowering, node: ir.Node, kind: str, x: ir.Value, weight: View | None, bias: View | None, epsilon: float
) -> None:
    out, values = node.outputs[0], lowering.values
    heads = values.heads(values.view(x))
    for view in (weight, bias):
        if view is not None and product(view.shape).count != heads.shape[2].count:
            raise Unsupported(f"a norm over {heads.shape[2]} elements whose weight has {product(view.shape)}")
    y = values.new(out)
    target = values.heads(y)
    values.emit(NormCall(path_of(node), kind, heads, None, weight, bias, epsilon, target, None, heads.shape[0]))
    values.assign(out, y)


def _skip_rms_norm(lowering: Lowering, node: ir.Node) -> None:
    (x, skip, weight), attributes = parsed(node)
    views = lowering.values.view(x), lowering.values.view(skip)
    scale = lowering.weights.optional_view(weight, add=attributes.offset)
    _emit_skip_norm(lowering, node, "skip_rms_norm", views, scale, None, attributes.epsilon)


def _skip_layer_norm(lowering: Lowering, node: ir.Node) -> None:
    (x, skip, weight, bias), attributes = parsed(node)
    views = lowering.values.view(x), lowering.values.view(skip)
    scale, shift = (lowering.weights.optional_view(value) for value in (weight, bias))
    _emit_skip_norm(lowering, node, "skip_layer_norm", views, scale, shift, attributes.epsilon)


def _emit_skip_norm(
    lowering: Lowering,
    node: ir.Node,
    kind: str,
    inputs: tuple[View, View],
    weight: View | None,
    bias: View | None,
    epsilon: float,
) -> None:
    x, skip = (lowering.values.matrix(view) for view in inputs)
    y, total = (lowering.values.new(out) for out in node.outputs[:2])
    matrices = lowering.values.matrix(y), lowering.values.matrix(total)
    call = NormCall(path_of(node), kind, x, skip, weight, bias, epsilon, *matrices, x.shape[0])
    lowering.values.emit(call)
    for out, view in zip(node.outputs, (y, total), strict=False):
        lowering.values.assign(out, view)


KERNELS = (
    Kernel("RMSNorm", _rms_norm),
    Kernel("SkipRMSNorm", _skip_rms_norm),
    Kernel("SkipLayerNorm", _skip_layer_norm),
    Kernel("LayerNormalization", _layer_norm, domain=""),
)
