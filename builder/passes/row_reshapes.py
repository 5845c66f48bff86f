"""Move reshapes that only rearrange rows behind row-wise operations, where they meet their opposite and vanish.

Requires: constants as initializers; merged views.
Ensures: no row-wise operation (Linear, norm, GatedMLP, element-wise) reads only reshapes that keep the last dimension,
of values with equal leading dimensions: it reads those values, and its result is reshaped instead. A Linear whose x is
reshaped otherwise (merged heads) and whose output is reshaped by rows again takes that shape. Counts operations moved.
"""

import onnx_ir as ir

from ..operations import traits_of
from . import graph as g
from .rowwise import apply_to, row_inputs


def move_row_reshapes(graph: ir.Graph) -> int:
    return sum(_sink(node) or _absorb(node) for node in list(graph) if node.graph is not None)


def _sink(node: ir.Node) -> bool:
    output = node.outputs[0]
    positions, shape = row_inputs(node), g.dims(output)
    if not positions or shape is None or g.reshape_target(shape) is None:
        return False
    sources = {position: _reshaped_rows(node.inputs[position]) for position in positions}
    leading = {None if source is None else (g.dims(source) or ())[:-1] for source in sources.values()}
    if len(leading) != 1 or (rows := leading.pop()) is None:
        return False
    others = [value for i, value in enumerate(node.inputs) if value is not None and i not in positions]
    if traits_of(node).elementwise and any(len(value.shape or ()) > len(rows) + 1 for value in others):
        return False
    moved = apply_to(node, node, {i: value for i, value in sources.items() if value is not None}, (*rows, shape[-1]))
    g.replace(output, g.reshape_before(node, moved, shape))
    return True


def _reshaped_rows(value: ir.Value | None) -> ir.Value | None:
    """What `value` is a reshape of, through any number of them that keep rows of the same length."""
    source = None
    while value is not None and (before := _reshaped(value)) is not None and _keeps_last_dimension(before, value):
        source = value = before
    return source


def _absorb(node: ir.Node) -> bool:
    """Reshape the x of a Linear instead of its output."""
    if not g.is_op(node, "Linear", domain=g.DOMAIN) or row_inputs(node) != [0]:
        return False
    x, following = node.inputs[0], g.sole_consumer(node.outputs[0])
    if x is None or following is None or _reshaped(x) is None:
        return False
    result = following.outputs[0]
    shape, before = g.dims(result), g.dims(x)
    if _reshaped(result) is not node.outputs[0] or not _keeps_last_dimension(node.outputs[0], result):
        return False
    if shape is None or before is None or g.reshape_target(shape) is None:
        return False
    x = g.reshape_before(node, x, (*shape[:-1], before[-1]))
    g.replace(result, apply_to(node, node, {0: x}, shape))
    return True


def _reshaped(value: ir.Value) -> ir.Value | None:
    """What `value` is a reshape of, if it is one."""
    producer = value.producer()
    return producer.inputs[0] if producer is not None and g.is_op(producer, "Reshape") else None


def _keeps_last_dimension(before: ir.Value, after: ir.Value) -> bool:
    old, new = g.dims(before), g.dims(after)
    return old is not None and new is not None and min(len(old), len(new)) > 1 and old[-1] == new[-1]
