"""Standard operations that are loops of their own: reductions, softmax, gathers, small matrix products."""

import onnx_ir as ir

from .dims import Shape
from .elementwise import outer_product
from .lowering import Lowering, Unsupported, int_attribute, lowers
from .ops_embedding import embedding, is_embedding
from .ops_fused import linear
from .program import AxisCall, GatherCall, MatMulCall
from .views import View

_REDUCTIONS = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceL1": "l1",
    "ReduceL2": "l2",
    "ReduceSumSquare": "sum_square",
    "ReduceLogSumExp": "log_sum_exp",
}


@lowers(*_REDUCTIONS, data=(0,))
def _reduce(lowering: Lowering, node: ir.Node) -> None:
    view = lowering.view(_input(node, 0))
    axes = lowering.integers(node.inputs[1], "axes") if len(node.inputs) > 1 else None
    if not axes:
        axes = list(range(len(view.shape)))
    reduced = sorted(axis % len(view.shape) for axis in axes)
    kept = [axis for axis in range(len(view.shape)) if axis not in reduced]
    if any(not view.shape[axis].is_static for axis in reduced):
        raise Unsupported("a reduction over the tokens of a step")
    turned = view.transpose((*kept, *reduced))
    outer = turned.shape[: len(kept)]
    size = 1
    for dim in turned.shape[len(kept) :]:
        size *= dim.count
    x = lowering.reshaped(turned, (*outer, type(turned.shape[0])(size)))
    _axis_call(lowering, node, _REDUCTIONS[node.op_type], x, outer)


@lowers("ArgMax", data=(0,))
def _arg_max(lowering: Lowering, node: ir.Node) -> None:
    x = _axis_last(lowering, node, 0)
    _axis_call(lowering, node, "arg_max", x, x.shape[:-1])


def _axis_call(lowering: Lowering, node: ir.Node, kind: str, x: View, outer: Shape) -> None:
    out = node.outputs[0]
    y = lowering.new(out)
    lowering.emit(AxisCall(out.name or "", kind, x, lowering.reshaped(y, outer)))
    lowering.assign(out, y)


@lowers("Softmax", "LogSoftmax", "CumSum", data=(0,))
def _along_axis(lowering: Lowering, node: ir.Node) -> None:
    kind = {"Softmax": "softmax", "LogSoftmax": "log_softmax", "CumSum": "cum_sum"}[node.op_type]
    rank = len(lowering.shape(_input(node, 0)))
    if node.op_type == "CumSum":
        if int_attribute(node, "exclusive", 0) or int_attribute(node, "reverse", 0):
            raise Unsupported("a cumulative sum that is exclusive or in reverse")
        axis = (lowering.integers(node.inputs[1], "axis") or [0])[0] % rank
    else:
        axis = int_attribute(node, "axis", -1) % rank
    x = _to_last(lowering.view(_input(node, 0)), axis)
    if not x.shape[-1].is_static:
        raise Unsupported("it runs along the tokens of a step")
    y = lowering.new(node.outputs[0])
    lowering.emit(AxisCall(node.outputs[0].name or "", kind, x, _to_last(y, axis)))
    lowering.assign(node.outputs[0], y)


@lowers("TopK", data=(0,))
def _top_k(lowering: Lowering, node: ir.Node) -> None:
    if not int_attribute(node, "largest", 1):
        raise Unsupported("the smallest elements")
    x = _axis_last(lowering, node, -1)
    axis = int_attribute(node, "axis", -1) % len(x.shape)
    values, indices = (lowering.new(out) for out in node.outputs)
    name = node.outputs[0].name or ""
    lowering.emit(AxisCall(name, "top_k", x, _to_last(values, axis), _to_last(indices, axis)))
    for out, view in zip(node.outputs, (values, indices), strict=True):
        lowering.assign(out, view)


def _axis_last(lowering: Lowering, node: ir.Node, default: int) -> View:
    view = lowering.view(_input(node, 0))
    view = _to_last(view, int_attribute(node, "axis", default) % len(view.shape))
    if not view.shape[-1].is_static:
        raise Unsupported("it runs along the tokens of a step")
    return view


def _to_last(view: View, axis: int) -> View:
    order = [a for a in range(len(view.shape)) if a != axis]
    return view.transpose((*order, axis))


@lowers("Gather")
def _gather(lowering: Lowering, node: ir.Node) -> None:
    data, indices = _input(node, 0), _input(node, 1)
    axis = int_attribute(node, "axis", 0) % len(lowering.shape(data))
    if is_embedding(lowering, data, axis) and not lowering.is_static(indices):
        embedding(lowering, node.outputs[0], data, indices)
    elif (picks := lowering.constant(indices)) is not None and picks.size == 1:
        view = lowering.view(data)
        size = view.shape[axis]
        if not size.is_static:
            raise Unsupported("it picks one token of a step")
        start = int(picks.reshape(()).item()) % size.count
        picked = view.slice(axis, start, 1)
        lowering.assign(node.outputs[0], lowering.reshaped(picked, lowering.shape(node.outputs[0])))
    else:
        _emit_gather(lowering, node, lowering.view(data), lowering.view(indices), axis)


@lowers("GatherND")
def _gather_nd(lowering: Lowering, node: ir.Node) -> None:
    data, indices = lowering.view(_input(node, 0)), lowering.view(_input(node, 1))
    if not indices.shape[-1].is_one or int_attribute(node, "batch_dims", 0):
        raise Unsupported("GatherND over more than one axis")
    _emit_gather(lowering, node, data, lowering.reshaped(indices, indices.shape[:-1]), 0)


def _emit_gather(lowering: Lowering, node: ir.Node, data: View, indices: View, axis: int) -> None:
    out = node.outputs[0]
    y = lowering.new(out)
    lowering.emit(GatherCall(out.name or "", data, indices, axis, y))
    lowering.assign(out, y)


@lowers("MatMul")
def _matmul(lowering: Lowering, node: ir.Node) -> None:
    a, b = _input(node, 0), _input(node, 1)
    out = node.outputs[0]
    shape_a, shape_b = lowering.shape(a), lowering.shape(b)
    if len(shape_a) < 2 or len(shape_b) < 2:
        raise Unsupported("a matrix product with a vector")
    if shape_a[-1].is_one:
        outer_product(lowering, out, lowering.operand(a), lowering.operand(b))
    elif lowering.is_static(b) and lowering.constant(b) is None and len(shape_b) == 2:
        linear(lowering, node, a, b, None, None, transposed=True)
    else:
        _small_matmul(lowering, out, lowering.view(a), lowering.view(b))


def _small_matmul(lowering: Lowering, out: ir.Value, a: View, b: View) -> None:
    if not a.shape[-1].is_static:
        raise Unsupported("a matrix product over the tokens of a step")
    y = lowering.new(out)
    batch = y.shape[:-2]
    call = MatMulCall(out.name or "", a.expand((*batch, *a.shape[-2:])), b.expand((*batch, *b.shape[-2:])), y)
    lowering.emit(call)
    lowering.assign(out, y)


def _input(node: ir.Node, index: int) -> ir.Value:
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None:
        raise Unsupported("an input is absent")
    return value
