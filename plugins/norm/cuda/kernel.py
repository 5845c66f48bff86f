"""RMSNorm, SkipRMSNorm, SkipLayerNorm, and ONNX's LayerNormalization, on the GPU."""

from dataclasses import dataclass

import onnx_ir as ir

from ....builder.lowering.dims import Dim
from ....builder.lowering.facts import Unsupported, product
from ....builder.lowering.kernels import Kernel
from ....builder.lowering.lowering import Lowering
from ....builder.lowering.nodes import float_attribute, int_attribute, parsed, path_of, required
from ....builder.lowering.views import View
from ....builder.targets.cuda.source.call import Context, CudaCall, Launch, counted, tiles
from .norm import norm_kernel

_BLOCK_ELEMENTS = 1024  # of the rows that a program takes, where they are short


@dataclass
class NormCall(CudaCall):
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


def _rms_norm(lowering: Lowering, node: ir.Node) -> None:
    (x, weight), attributes = parsed(node)
    scale = lowering.weights.optional_view(weight, add=attributes.offset)
    _emit_norm(lowering, node, False, x, scale, None, attributes.epsilon)


def _layer_norm(lowering: Lowering, node: ir.Node) -> None:
    x, (weight, bias) = required(node, 0), [*node.inputs, None][1:3]
    rank = len(lowering.facts.shape(x))
    if int_attribute(node, "axis", -1) % rank != rank - 1:
        raise Unsupported("normalization over more than the last axis")
    if any(out.consumers() for out in node.outputs[1:]):
        raise Unsupported("the mean and deviation of a normalization as outputs")
    scale, shift = (lowering.weights.optional_view(value) for value in (weight, bias))
    _emit_norm(lowering, node, True, x, scale, shift, float_attribute(node, "epsilon", 1e-5))


def _emit_norm(
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
    values.emit(NormCall(path_of(node), is_centred, heads, None, weight, bias, epsilon, values.heads(y), None))
    values.assign(out, y)


def _skip_rms_norm(lowering: Lowering, node: ir.Node) -> None:
    (x, skip, weight), attributes = parsed(node)
    scale = lowering.weights.optional_view(weight, add=attributes.offset)
    _emit_skip_norm(lowering, node, False, (x, skip), scale, None, attributes.epsilon)


def _skip_layer_norm(lowering: Lowering, node: ir.Node) -> None:
    (x, skip, weight, bias), attributes = parsed(node)
    scale, shift = (lowering.weights.optional_view(value) for value in (weight, bias))
    _emit_skip_norm(lowering, node, True, (x, skip), scale, shift, attributes.epsilon)


def _emit_skip_norm(
    lowering: Lowering,
    node: ir.Node,
    is_centred: bool,
    inputs: tuple[ir.Value, ir.Value],
    weight: View | None,
    bias: View | None,
    epsilon: float,
) -> None:
    values = lowering.values
    x, skip = (values.matrix(values.view(value)) for value in inputs)
    y, total = (values.new(out) for out in node.outputs[:2])
    matrices = values.matrix(y), values.matrix(total)
    values.emit(NormCall(path_of(node), is_centred, x, skip, weight, bias, epsilon, *matrices))
    for out, view in zip(node.outputs, (y, total), strict=False):
        values.assign(out, view)


KERNELS = (
    Kernel("RMSNorm", _rms_norm),
    Kernel("SkipRMSNorm", _skip_rms_norm),
    Kernel("SkipLayerNorm", _skip_layer_norm),
    Kernel("LayerNormalization", _layer_norm, domain=""),
)
