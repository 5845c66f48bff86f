"""Replace shapes computed in the graph by constants.

Requires: values with known shapes; constants as initializers.
Ensures: every Reshape whose result has at most one symbolic dimension has a constant target (-1 in that place); so has
every Expand that only grows dimensions to integers; Shape of integers is a constant. The Shape, Squeeze and Concat
nodes that computed them are gone. Counts the nodes that got a constant.
"""

import numpy as np
import onnx_ir as ir

from .graph import Dims, add_constant, constant, dims, insert_before, is_op, replace, reshape_before, reshape_target


def make_shapes_static(graph: ir.Graph) -> int:
    return sum(_visit(graph, node) for node in list(graph))


def _visit(graph: ir.Graph, node: ir.Node) -> bool:
    if node.graph is None or not node.inputs or node.inputs[0] is None:
        return False
    source = node.inputs[0]
    if is_op(node, "Shape"):
        return _fold_shape(graph, node, source)
    if not is_op(node, "Reshape", "Expand") or constant(node.inputs[1]) is not None:
        return False
    shape = dims(node.outputs[0])
    if shape is None:
        return False
    if is_op(node, "Reshape"):
        if reshape_target(shape) is None:
            return False
        replace(node.outputs[0], reshape_before(node, source, shape))
        return True
    return _fix_expand(graph, node, source, shape)


def _fold_shape(graph: ir.Graph, node: ir.Node, source: ir.Value) -> bool:
    shape = dims(source)
    if shape is None:
        return False
    window = shape[node.attributes.get_int("start", 0) : node.attributes.get_int("end", None)]
    if not all(isinstance(size, int) for size in window):
        return False
    replace(node.outputs[0], add_constant(graph, np.array(window, np.int64), f"{node.outputs[0].name}.value"))
    return True


def _fix_expand(graph: ir.Graph, node: ir.Node, source: ir.Value, shape: Dims) -> bool:
    before = dims(source)
    if before is None:
        return False
    aligned = (1,) * (len(shape) - len(before)) + before
    if any(not isinstance(size, int) and size != old for size, old in zip(shape, aligned, strict=True)):
        return False  # grows to a number of tokens that only a run knows
    target = np.array([size if isinstance(size, int) else 1 for size in shape], np.int64)
    sizes = add_constant(graph, target, "expand_" + "x".join(map(str, target)))
    dtype = source.dtype or ir.DataType.FLOAT
    replace(node.outputs[0], insert_before(node, "Expand", [source, sizes], [shape], dtype=dtype).outputs[0])
    return True
