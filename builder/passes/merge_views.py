"""Merge chains of reshapes, and chains of transposes.

Requires: values with known shapes; constants as initializers.
Ensures: no Reshape reads a Reshape (where the result has at most one symbolic dimension), no Transpose a Transpose;
none of them returns what it reads. Counts nodes changed or removed.
"""

import onnx_ir as ir

from .graph import dims, insert_before, is_op, replace, reshape_before, reshape_target, same_shape


def merge_views(graph: ir.Graph) -> int:
    return sum(_visit(node) for node in list(graph) if node.graph is not None)


def _visit(node: ir.Node) -> bool:
    if is_op(node, "Reshape"):
        return _merge_reshape(node)
    return is_op(node, "Transpose") and _merge_transpose(node)


def _merge_reshape(node: ir.Node) -> bool:
    output = node.outputs[0]
    source = origin(output)
    shape = dims(output)
    if same_shape(source, output):
        replace(output, source)
        return True
    if shape is None or reshape_target(shape) is None or source is node.inputs[0]:
        return False
    replace(output, reshape_before(node, source, shape))
    return True


def origin(value: ir.Value) -> ir.Value:
    """What `value` is a reshape of, through any number of them."""
    while (node := value.producer()) is not None and is_op(node, "Reshape") and node.inputs[0] is not None:
        value = node.inputs[0]
    return value


def _merge_transpose(node: ir.Node) -> bool:
    output, source = node.outputs[0], node.inputs[0]
    assert source is not None
    inner = source.producer()
    shape = dims(output)
    if inner is None or not is_op(inner, "Transpose") or shape is None:
        return False
    outer_perm, inner_perm = (n.attributes.get_ints("perm", None) or range(len(shape))[::-1] for n in (node, inner))
    perm = [inner_perm[axis] for axis in outer_perm]
    origin = inner.inputs[0]
    assert origin is not None
    if perm == sorted(perm):
        replace(output, origin)
    else:
        dtype = origin.dtype or ir.DataType.FLOAT
        replace(output, insert_before(node, "Transpose", [origin], [shape], {"perm": perm}, dtype=dtype).outputs[0])
    return True
