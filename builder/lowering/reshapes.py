"""Operations that only look at memory in another way: no data moves unless a layout cannot be expressed by strides."""

import numpy as np
import onnx_ir as ir

from .dims import ONE, Dim
from .expressions import Expr
from .lowering import Lowering, Unsupported, attribute, int_attribute, lowers, scalar_of
from .program import LoopCall


@lowers("Reshape", "Squeeze", "Unsqueeze", "Flatten", data=(0,))
def _reshape(lowering: Lowering, node: ir.Node) -> None:
    """The output's shape is known, so the inputs that say how are never read."""
    _reshape_to_output(lowering, node)


@lowers("Identity", "Dropout", data=(0,))
def _identity(lowering: Lowering, node: ir.Node) -> None:
    lowering.assign(node.outputs[0], lowering.operand(_first(node)))


@lowers("Transpose")
def _transpose(lowering: Lowering, node: ir.Node) -> None:
    view = lowering.view(_first(node))
    permutation = attribute(node, "perm", None)
    axes = tuple(permutation) if permutation is not None else tuple(reversed(range(len(view.shape))))  # type: ignore
    lowering.assign(node.outputs[0], view.transpose(axes))


@lowers("Expand", data=(0,))
def _expand(lowering: Lowering, node: ir.Node) -> None:
    lowering.assign(node.outputs[0], lowering.view(_first(node)).expand(lowering.shape(node.outputs[0])))


@lowers("ConstantOfShape", data=())
def _constant_of_shape(lowering: Lowering, node: ir.Node) -> None:
    out = node.outputs[0]
    tensor = attribute(node, "value", None)
    data = tensor.numpy() if tensor is not None else np.zeros(1, np.float32)  # type: ignore[union-attr]
    dtype = lowering.dtype(out)
    lowering.assign(out, Expr("load", (scalar_of(data, dtype),), dtype, lowering.shape(out)))


@lowers("Split", data=(0,))
def _split(lowering: Lowering, node: ir.Node) -> None:
    view = lowering.view(_first(node))
    axis = int_attribute(node, "axis", 0) % len(view.shape)
    start = 0
    for out in node.outputs:
        size = lowering.shape(out)[axis]
        if not size.is_static:
            raise Unsupported("it splits the tokens of a step")
        lowering.assign(out, view.slice(axis, start, size.count))
        start += size.count


@lowers("Slice", data=(0,))
def _slice(lowering: Lowering, node: ir.Node) -> None:
    view = lowering.view(_first(node))
    inputs = [*node.inputs, None, None]
    starts = lowering.integers(inputs[1], "starts") or []
    ends = lowering.integers(inputs[2], "ends") or []
    axes = lowering.integers(inputs[3], "axes") or list(range(len(starts)))
    steps = lowering.integers(inputs[4], "steps") or [1] * len(starts)
    want = lowering.shape(node.outputs[0])
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis %= len(view.shape)
        have = view.shape[axis]
        if want[axis] == have and start == 0 and step == 1:
            continue
        if not have.is_static:
            raise Unsupported(f"it takes {start}:{end}:{step} of the tokens of a step")
        begin, stop, step = slice(start, end, step).indices(have.count)
        view = view.slice(axis, begin, len(range(begin, stop, step)), step)
    lowering.assign(node.outputs[0], view)


@lowers("Concat")
def _concat(lowering: Lowering, node: ir.Node) -> None:
    """Each part is computed right into its place."""
    out = node.outputs[0]
    target = lowering.new(out)
    axis = int_attribute(node, "axis", 0) % len(target.shape)
    start = 0
    for value in node.inputs:
        if value is None:
            continue
        size = lowering.shape(value)[axis]
        if not size.is_static:
            raise Unsupported("it concatenates along the tokens of a step")
        if size.count:
            lowering.store(value, target.slice(axis, start, size.count))
        start += size.count
    lowering.assign(out, target)


@lowers("Tile", data=(0,))
def _tile(lowering: Lowering, node: ir.Node) -> None:
    out = node.outputs[0]
    view, want = lowering.view(_first(node)), lowering.shape(node.outputs[0])
    target = lowering.new(out)
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
    lowering.emit(LoopCall(out.name or "", [(stretched, load)]))
    lowering.assign(out, target)


def _reshape_to_output(lowering: Lowering, node: ir.Node) -> None:
    out = node.outputs[0]
    lowering.assign(out, lowering.reshaped(lowering.view(_first(node)), lowering.shape(out)))


def _first(node: ir.Node) -> ir.Value:
    value = node.inputs[0]
    if value is None:
        raise Unsupported("its first input is absent")
    return value
