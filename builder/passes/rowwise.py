"""Operations that work row by row: row i of the output depends on row i of the inputs, whatever the leading shape."""

from collections.abc import Mapping

import onnx_ir as ir

from ..operations import traits_of
from . import graph as g


def row_inputs(node: ir.Node) -> list[int] | None:
    """Positions of the inputs that have the rows of the output (all dimensions but the last), None if not row-wise.

    The other operands of an element-wise operation are the same for all rows.
    """
    traits = traits_of(node)
    candidates = tuple(range(len(node.inputs))) if traits.elementwise else traits.row_inputs
    if len(node.outputs) != 1 or candidates is None:
        return None
    if not g.is_last_axis(node.attributes.get_int("axis", -1), node.outputs[0]):
        return None
    shape = g.dims(node.outputs[0])
    positions = []
    for position in candidates:
        value = g.optional_input(node, position)
        if value is None:
            continue
        operand = g.dims(value)
        if operand is None or shape is None:
            return None
        if len(operand) == len(shape) and operand[:-1] == shape[:-1]:
            positions.append(position)
        elif any(size != 1 for size in operand[:-1]):
            return None
    return positions


def apply_to(anchor: ir.Node, node: ir.Node, inputs: Mapping[int, ir.Value], shape: g.Dims) -> ir.Value:
    """The operation of `node` with other `inputs` at some positions and an output of `shape`, put before `anchor`."""
    operands = [inputs.get(position, value) for position, value in enumerate(node.inputs)]
    twin = ir.node(node.op_type, operands, node.attributes, domain=node.domain, name=node.name)
    if "axis" in twin.attributes:
        twin.attributes["axis"] = ir.AttrInt64("axis", -1)  # the last one, whatever the rank is now
    twin.metadata_props.update(node.metadata_props)
    twin.outputs[0].shape, twin.outputs[0].type = ir.Shape(shape), node.outputs[0].type
    assert anchor.graph is not None
    anchor.graph.insert_before(anchor, twin)
    return twin.outputs[0]
