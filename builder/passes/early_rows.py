"""Select the rows that logits are wanted for as early as possible: after the last attention, not before lm_head.

Requires: Linears with residuals; common subexpressions shared.
Ensures: a Gather of rows (axis 1 of [1, T, ...], by a vector of indices) never reads an operation that works row by row
and that only this Gather reads; it reads that operation's inputs instead. A prefill then computes the last layer's
projections, norm and MLP for a few rows only. Counts operations that the selection moved past.
"""

import onnx_ir as ir

from . import graph as g
from .rowwise import apply_to, row_inputs

_AXIS = 1


def select_rows_early(graph: ir.Graph) -> int:
    count = 0
    pending = [node for node in graph if _is_row_selection(node)]
    while pending:
        gather = pending.pop()
        if gather.graph is not None and (sources := _move(gather)) is not None:
            pending.extend(sources)
            count += 1
    if count:
        graph.sort()
    return count


def _is_row_selection(node: ir.Node) -> bool:
    if not g.is_op(node, "Gather") or node.attributes.get_int("axis", 0) != _AXIS:
        return False
    source, index = node.inputs
    shape, rows = (None if value is None else g.dims(value) for value in (source, index))
    return shape is not None and rows is not None and len(shape) == 3 and shape[0] == 1 and len(rows) == 1


def _move(gather: ir.Node) -> list[ir.Node] | None:
    """Put the selection before the operation it reads; the selections that this made, or None if it must stay."""
    source, index = gather.inputs
    assert source is not None
    assert index is not None
    node, shape = source.producer(), g.dims(source)
    rows = g.dims(index)
    if node is None or shape is None or rows is None or gather.graph is None:
        return None
    if g.sole_consumer(source) is not gather:
        return None
    positions = row_inputs(node)
    if positions is None:
        return None
    made: dict[ir.Value, ir.Node] = {}
    for value in (node.inputs[position] for position in positions):
        assert value is not None
        if value not in made:
            made[value] = _selection_before(gather, value, index)
    sources = {position: made[node.inputs[position]].outputs[0] for position in positions}  # type: ignore[index]
    twin = apply_to(gather, node, sources, (shape[0], rows[0], *shape[2:]))
    name = source.name
    g.replace(gather.outputs[0], twin)
    if not twin.is_graph_output():
        twin.name = name  # `source` is gone
    return list(made.values())


def _selection_before(anchor: ir.Node, value: ir.Value, index: ir.Value) -> ir.Node:
    """The selection of the same rows of `value`, the one already there if there is one."""
    for node in value.consumers():
        if _is_row_selection(node) and node.inputs[1] is index:
            return node
    shape, rows = g.dims(value), g.dims(index)
    assert shape is not None
    assert rows is not None
    shape = (shape[0], rows[0], *shape[2:])
    dtype = value.dtype or ir.DataType.FLOAT
    return g.insert_before(anchor, "Gather", [value, index], [shape], {"axis": _AXIS}, name=anchor.name, dtype=dtype)
