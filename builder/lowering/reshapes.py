"""Operations that only look at memory in another way: no data moves unless a layout cannot be expressed by strides."""

import onnx_ir as ir

from .dims import ONE, Dim
from .expressions import Expr
from .facts import Unsupported
from .kernels import lowers
from .lowering import Lowering
from .nodes import attribute, int_attribute, required
from .program import LoopCall


@lowers("Reshape", data=(0,))
def _reshape(lowering: Lowering, node: ir.Node) -> None:
    """The output's shape is known, so the input that tells it is never read."""
    out, view = node.outputs[0], lowering.values.view(required(node, 0))
    lowering.values.assign(out, lowering.values.reshaped(view, lowering.facts.shape(out)))


@lowers("Transpose")
def _transpose(lowering: Lowering, node: ir.Node) -> None:
    view = lowering.values.view(required(node, 0))
    permutation = attribute(node, "perm", None)
    axes = tuple(permutation) if permutation is not None else tuple(reversed(range(len(view.shape))))  # type: ignore
    lowering.values.assign(node.outputs[0], view.transpose(axes))


@lowers("Expand", data=(0,))
def _expand(lowering: Lowering, node: ir.Node) -> None:
    out, view = node.outputs[0], lowering.values.view(required(node, 0))
    lowering.values.assign(out, view.expand(lowering.facts.shape(out)))


@lowers("Split", data=(0,))
def _split(lowering: Lowering, node: ir.Node) -> None:
    view = lowering.values.view(required(node, 0))
    axis = int_attribute(node, "axis", 0) % len(view.shape)
    start = 0
    for out in node.outputs:
        size = lowering.facts.shape(out)[axis]
        if not size.is_static:
            raise Unsupported("it splits the tokens of a step")
        lowering.values.assign(out, view.slice(axis, start, size.count))
        start += size.count


@lowers("Slice", data=(0,))
def _slice(lowering: Lowering, node: ir.Node) -> None:
    view = lowering.values.view(required(node, 0))
    inputs = [*node.inputs, None, None]
    starts = lowering.facts.integers(inputs[1], "starts") or []
    ends = lowering.facts.integers(inputs[2], "ends") or []
    axes = lowering.facts.integers(inputs[3], "axes") or list(range(len(starts)))
    steps = lowering.facts.integers(inputs[4], "steps") or [1] * len(starts)
    want = lowering.facts.shape(node.outputs[0])
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis %= len(view.shape)
        have = view.shape[axis]
        if want[axis] == have and start == 0 and step == 1:
            continue
        if not have.is_static:
            raise Unsupported(f"it takes {start}:{end}:{step} of the tokens of a step")
        begin, stop, step = slice(start, end, step).indices(have.count)
        view = view.slice(axis, begin, len(range(begin, stop, step)), step)
    lowering.values.assign(node.outputs[0], view)


@lowers("Concat")
def _concat(lowering: Lowering, node: ir.Node) -> None:
    """Each part is computed right into its place."""
    out = node.outputs[0]
    target = lowering.values.new(out)
    axis = int_attribute(node, "axis", 0) % len(target.shape)
    start = 0
    for value in node.inputs:
        if value is None:
            continue
        size = lowering.facts.shape(value)[axis]
        if not size.is_static:
            raise Unsupported("it concatenates along the tokens of a step")
        if size.count:
            lowering.values.store(value, target.slice(axis, start, size.count))
        start += size.count
    lowering.values.assign(out, target)


@lowers("Tile", data=(0,))
def _tile(lowering: Lowering, node: ir.Node) -> None:
    out = node.outputs[0]
    view, want = lowering.values.view(required(node, 0)), lowering.facts.shape(node.outputs[0])
    target = lowering.values.new(out)
    spread, expanded = [], []
    for have, size in zip(view.shape, want, strict=True):
        if have == size:
            spread += [ONE, have]
            expanded += [ONE, have]
        elif have.is_static and size.is_static:
            spread += [Dim(size.count // have.count), have]
            expanded += [ONE, have]
        else:
            raise Unsupported("it repeats the tokens of a step")
    stretched = target.reshape(tuple(spread))
    source = view.reshape(tuple(expanded))
    if stretched is None or source is None:
        raise Unsupported("its layout cannot be expressed by strides")
    load = Expr("load", (source.expand(tuple(spread)),), target.dtype, tuple(spread))
    lowering.values.emit(LoopCall(out.name or "", [(stretched, load)]))
    lowering.values.assign(out, target)


@lowers("Pad", data=(0, 2))
def _pad(lowering: Lowering, node: ir.Node) -> None:
    """Fill the whole output with the constant, then copy the input into its place."""
    out, source = node.outputs[0], required(node, 0)
    have, target = lowering.facts.shape(source), lowering.values.new(out)
    pads = lowering.facts.integers(required(node, 1), "pads") or []
    fill = lowering.values.operand(required(node, 2))
    lowering.values.emit(LoopCall(out.name or "", [(target, Expr("load", (fill,), target.dtype, target.shape))]))
    inner = target
    for axis, (before, after) in enumerate(zip(pads[: len(have)], pads[len(have) :], strict=True)):
        if before or after:
            if min(before, after) < 0 or not have[axis].is_static:
                raise Unsupported(f"it pads axis {axis} by {before} before and {after} after")
            inner = inner.slice(axis, before, have[axis].count)
    lowering.values.store(source, inner)
    lowering.values.assign(out, target)
