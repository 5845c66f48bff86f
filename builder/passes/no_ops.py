"""Remove operations that return their input.

Requires: constants as initializers (constant folding).
Ensures: no Identity, inference-time Dropout, Cast to the same type, Expand, Slice or Transpose that changes nothing,
Concat or Split of one piece, multiplication or division by 1, addition or subtraction of 0, power of 1. Counts nodes.
"""

import onnx_ir as ir

from .graph import constant, is_op, optional_input, replace, same_type, scalar


def remove_no_ops(graph: ir.Graph) -> int:
    count = 0
    for node in list(graph):
        source = _returned_input(node)
        if source is not None and same_type(source, node.outputs[0]):
            replace(node.outputs[0], source)
            count += 1
    return count


def _returned_input(node: ir.Node) -> ir.Value | None:
    """The input whose values `node` returns, provided that shape and type agree."""
    if node.domain != "" or not node.inputs:
        return None
    first, second = node.inputs[0], optional_input(node, 1)
    match node.op_type:
        case "Identity" | "Cast" | "Expand":
            return first
        case "Dropout":
            unused_mask = len(node.outputs) == 1 or not node.outputs[1].uses()
            return first if unused_mask and not scalar(optional_input(node, 2)) else None
        case "Concat":
            return first if len(node.inputs) == 1 else None
        case "Split":
            return first if len(node.outputs) == 1 else None
        case "Transpose":
            perm = list(node.attributes.get_ints("perm", None) or [])
            return first if perm == sorted(perm) and perm else None
        case "Slice":
            return first if _keeps_order(optional_input(node, 4)) else None
        case "Mul" | "Add":
            neutral = 1.0 if is_op(node, "Mul") else 0.0
            return first if scalar(second) == neutral else second if scalar(first) == neutral else None
        case "Div" | "Pow":
            return first if scalar(second) == 1.0 else None
        case "Sub":
            return first if scalar(second) == 0.0 else None
        case _:
            return None


def _keeps_order(steps: ir.Value | None) -> bool:
    data = constant(steps)
    return steps is None or (data is not None and bool((data == 1).all()))
