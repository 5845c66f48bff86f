"""Standard operations that are loops of their own: reductions, softmax, gathers, small matrix products."""

import onnx_ir as ir

from .dims import Dim, Shape
from .expressions import Expr
from .facts import Unsupported
from .kernels import lowers
from .lowering import Lowering
from .nodes import int_attribute, required
from .program import AxisCall, GatherCall, GatherElementsCall, MatMulCall, ScatterElementsCall
from .views import View

_REDUCTIONS = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceLogSumExp": "log_sum_exp",
}


@lowers(*_REDUCTIONS, data=(0,))
def _reduce(lowering: Lowering, node: ir.Node) -> None:
    view = lowering.values.view(required(node, 0))
    axes = lowering.facts.integers(node.inputs[1], "axes") if len(node.inputs) > 1 else None
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
    x = lowering.values.reshaped(turned, (*outer, Dim(size)))
    _axis_call(lowering, node, _REDUCTIONS[node.op_type], x, outer)


@lowers("ArgMax", data=(0,))
def _arg_max(lowering: Lowering, node: ir.Node) -> None:
    x = _axis_last(lowering, node, 0)
    _axis_call(lowering, node, "arg_max", x, x.shape[:-1])


def _axis_call(lowering: Lowering, node: ir.Node, kind: str, x: View, outer: Shape) -> None:
    out = node.outputs[0]
    y = lowering.values.new(out)
    lowering.values.emit(AxisCall(out.name or "", kind, x, lowering.values.reshaped(y, outer)))
    lowering.values.assign(out, y)


@lowers("Softmax", "LogSoftmax", "CumSum", data=(0,))
def _along_axis(lowering: Lowering, node: ir.Node) -> None:
    kind = {"Softmax": "softmax", "LogSoftmax": "log_softmax", "CumSum": "cum_sum"}[node.op_type]
    rank = len(lowering.facts.shape(required(node, 0)))
    if node.op_type == "CumSum":
        if int_attribute(node, "exclusive", 0) or int_attribute(node, "reverse", 0):
            raise Unsupported("a cumulative sum that is exclusive or in reverse")
        axis = (lowering.facts.integers(node.inputs[1], "axis") or [0])[0] % rank
    else:
        axis = int_attribute(node, "axis", -1) % rank
    x = _to_last(lowering.values.view(required(node, 0)), axis)
    if not x.shape[-1].is_static:
        raise Unsupported("it runs along the tokens of a step")
    y = lowering.values.new(node.outputs[0])
    lowering.values.emit(AxisCall(node.outputs[0].name or "", kind, x, _to_last(y, axis)))
    lowering.values.assign(node.outputs[0], y)


@lowers("TopK", data=(0,))
def _top_k(lowering: Lowering, node: ir.Node) -> None:
    if not int_attribute(node, "largest", 1):
        raise Unsupported("the smallest elements")
    x = _axis_last(lowering, node, -1)
    axis = int_attribute(node, "axis", -1) % len(x.shape)
    values, indices = (lowering.values.new(out) for out in node.outputs)
    name = node.outputs[0].name or ""
    lowering.values.emit(AxisCall(name, "top_k", x, _to_last(values, axis), _to_last(indices, axis)))
    for out, view in zip(node.outputs, (values, indices), strict=True):
        lowering.values.assign(out, view)


def _axis_last(lowering: Lowering, node: ir.Node, default: int) -> View:
    view = lowering.values.view(required(node, 0))
    return _to_last(view, _static_axis(view, int_attribute(node, "axis", default)))


def _to_last(view: View, axis: int) -> View:
    order = [a for a in range(len(view.shape)) if a != axis]
    return view.transpose((*order, axis))


@lowers("Gather")
def _gather(lowering: Lowering, node: ir.Node) -> None:
    data, indices, out = required(node, 0), required(node, 1), node.outputs[0]
    axis = int_attribute(node, "axis", 0) % len(lowering.facts.shape(data))
    picks = lowering.facts.constant(indices)
    if picks is not None and picks.size == 1:
        view = lowering.values.view(data)
        size = view.shape[axis]
        if not size.is_static:
            raise Unsupported("it picks one token of a step")
        picked = view.slice(axis, int(picks.reshape(()).item()) % size.count, 1)
        lowering.values.assign(out, lowering.values.reshaped(picked, lowering.facts.shape(out)))
        return
    views = lowering.values.view(data), lowering.values.view(indices)
    y = lowering.values.new(out)
    lowering.values.emit(GatherCall(out.name or "", *views, axis, y))
    lowering.values.assign(out, y)


@lowers("GatherElements")
def _gather_elements(lowering: Lowering, node: ir.Node) -> None:
    data, indices = lowering.values.view(required(node, 0)), lowering.values.view(required(node, 1))
    axis, out = _static_axis(data, int_attribute(node, "axis", 0)), node.outputs[0]
    y = lowering.values.new(out)
    lowering.values.emit(GatherElementsCall(out.name or "", data, indices, axis, y))
    lowering.values.assign(out, y)


@lowers("ScatterElements")
def _scatter_elements(lowering: Lowering, node: ir.Node) -> None:
    """A copy of the data, then the updates into it."""
    data, out = required(node, 0), node.outputs[0]
    indices, updates = (lowering.values.view(required(node, index)) for index in (1, 2))
    y = lowering.values.new(out)
    axis = _static_axis(y, int_attribute(node, "axis", 0))
    lowering.values.store(data, y)
    lowering.values.emit(ScatterElementsCall(out.name or "", indices, updates, axis, y))
    lowering.values.assign(out, y)


def _static_axis(view: View, axis: int) -> int:
    axis %= len(view.shape)
    if not view.shape[axis].is_static:
        raise Unsupported("it runs along the tokens of a step")
    return axis


@lowers("MatMul")
def _matmul(lowering: Lowering, node: ir.Node) -> None:
    a, b, out = required(node, 0), required(node, 1), node.outputs[0]
    shape_a, shape_b = lowering.facts.shape(a), lowering.facts.shape(b)
    if len(shape_a) < 2 or len(shape_b) < 2:
        raise Unsupported("a matrix product with a vector")
    if shape_a[-1].is_one:  # it broadcasts like a multiplication
        operands = lowering.values.operand(a), lowering.values.operand(b)
        lowering.values.assign(out, Expr("mul", operands, lowering.facts.dtype(out), lowering.facts.shape(out)))
    else:
        _small_matmul(lowering, out, lowering.values.view(a), lowering.values.view(b))


def _small_matmul(lowering: Lowering, out: ir.Value, a: View, b: View) -> None:
    if not a.shape[-1].is_static:
        raise Unsupported("a matrix product over the tokens of a step")
    y = lowering.values.new(out)
    batch = y.shape[:-2]
    call = MatMulCall(out.name or "", a.expand((*batch, *a.shape[-2:])), b.expand((*batch, *b.shape[-2:])), y)
    lowering.values.emit(call)
    lowering.values.assign(out, y)
