"""The loops that a call runs over its views: every target writes the same nests, each in its language."""

from dataclasses import dataclass

from .dims import Dim, Shape
from .expressions import Expr
from .program import AxisCall, GatherCall, LoopCall, MatMulCall
from .views import View


@dataclass(frozen=True)
class Axis:
    """One loop: its length, and the stride of every operand along it."""

    size: Dim
    strides: tuple[int, ...]


def axes_of(shape: Shape, operands: list[View]) -> list[Axis]:
    """The loops over `shape`, symbolic one first, neighbours merged where every operand allows it."""
    strides = [view.expand(shape).strides for view in operands]
    axes = [Axis(dim, tuple(s[i] for s in strides)) for i, dim in enumerate(shape) if not dim.is_one]
    symbolic = [axis for axis in axes if not axis.size.is_static]
    merged: list[Axis] = []
    for axis in (axis for axis in axes if axis.size.is_static):
        if merged and all(o == i * axis.size.count for o, i in zip(merged[-1].strides, axis.strides, strict=True)):
            merged[-1] = Axis(Dim(merged[-1].size.count * axis.size.count), axis.strides)
        else:
            merged.append(axis)
    return symbolic + merged


@dataclass(frozen=True)
class Chain:
    """An element-wise loop: expressions, each after those it is made of, over `axes`.

    An axis has the strides of `targets`, which the roots are stored through, then of `leaves`, which are read.
    """

    exprs: list[Expr]
    targets: list[View]
    leaves: list[View]
    axes: list[Axis]


def chain_of(call: LoopCall) -> Chain:
    """What is computed once for each element, whatever its outputs share."""
    exprs = list({id(expr): expr for _, root in call.outputs for expr in root.walk()}.values())
    targets = [view for view, _ in call.outputs]
    leaves = list(dict.fromkeys(arg for expr in exprs for arg in expr.args if isinstance(arg, View)))
    return Chain(exprs, targets, leaves, axes_of(max((view.shape for view in targets), key=len), targets + leaves))


def axis_operands(call: AxisCall) -> list[View]:
    """x, y and y2 of a function along an axis, without that axis."""
    outer = call.x.shape[:-1]
    return [View(view.buffer, outer, view.strides[: len(outer)], view.offset) for view in (call.x, *call.writes())]


def gather_operands(call: GatherCall) -> tuple[View, View]:
    """Data and indices over the shape of y; an index times its stride along the axis is to be added to data's place."""
    axis, rank = call.axis, len(call.indices.shape)
    shape = call.y.shape
    before, after = call.data.strides[:axis], call.data.strides[axis + 1 :]
    data = View(call.data.buffer, shape, (*before, *(0,) * rank, *after), call.data.offset)
    zeros = (0,) * axis, (0,) * (len(shape) - axis - rank)
    picks = View(call.indices.buffer, shape, (*zeros[0], *call.indices.strides, *zeros[1]), call.indices.offset)
    return data, picks


def elements_operands(indices: View, axis: int, along: View, beside: View) -> list[View]:
    """Over the shape of `indices`: they, what they point into (without the axis), and what lies at their place."""
    shape = indices.shape
    others = View(along.buffer, shape, (*along.strides[:axis], 0, *along.strides[axis + 1 :]), along.offset)
    return [indices, others, View(beside.buffer, shape, beside.strides, beside.offset)]


def matmul_operands(call: MatMulCall) -> tuple[View, View]:
    """a and b over the shape of y, without the dimension that is summed over."""
    shape = call.y.shape
    a = View(call.a.buffer, shape, (*call.a.strides[:-1], 0), call.a.offset)
    b = View(call.b.buffer, shape, (*call.b.strides[:-2], 0, call.b.strides[-1]), call.b.offset)
    return a, b
