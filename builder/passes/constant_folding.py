"""Compute what depends on constants alone.

Requires: nodes in topological order.
Ensures: no Constant nodes (their data become initializers); no node reads only constants with data, unless its result
would be large, its operation is random or has no reference implementation. Parameters are never folded: they have no
data yet. Counts nodes computed; Constant nodes do not count.
"""

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from . import numpy_ops
from .graph import constant, erase, static_dims

MAX_ELEMENTS = 1 << 20  # a larger result stays an expression, evaluated when the engine is packed


def fold_constants(graph: ir.Graph) -> int:
    count = 0
    for node in list(graph):
        if node.op_type == "Constant" and node.domain == "":
            _to_initializers(graph, node, [_constant_data(node)])
        elif _is_foldable(node) and (results := _compute(node)) is not None:
            _to_initializers(graph, node, results)
            count += 1
    return count


def _constant_data(node: ir.Node) -> np.ndarray:
    (attribute,) = node.attributes.values()
    if isinstance(attribute.value, ir.TensorProtocol):
        return attribute.value.numpy()
    dtype = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    return np.array(attribute.value, dtype.get(attribute.name, np.object_))


def _is_foldable(node: ir.Node) -> bool:
    inputs = [value for value in node.inputs if value is not None]
    return (
        node.domain == ""
        and bool(inputs)
        and all(constant(value) is not None for value in inputs)
        and not node.op_type.startswith("Random")
        and not any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values())
        and all(_size(output) <= MAX_ELEMENTS for output in node.outputs)
        and all(output.type is None or isinstance(output.type, ir.TensorType) for output in node.outputs)
    )


def _size(value: ir.Value) -> int:
    shape = static_dims(value)
    return 0 if shape is None else int(np.prod(shape, dtype=np.int64))


def _compute(node: ir.Node) -> list[np.ndarray] | None:
    inputs = [constant(value) for value in node.inputs]
    known = node.op_type in numpy_ops.OPERATIONS
    results = numpy_ops.apply(node, inputs) if known else _reference(node, inputs)
    return None if results is None or any(array.size > MAX_ELEMENTS for array in results) else results


def _reference(node: ir.Node, inputs: list[np.ndarray | None]) -> list[np.ndarray] | None:
    feeds = {str(v.name): array for v, array in zip(node.inputs, inputs, strict=True) if v is not None}
    try:
        results = ReferenceEvaluator(ir.to_proto(node)).run(None, feeds)
    except (NotImplementedError, RuntimeError, TypeError, ValueError):
        return None  # no implementation for this case: the node stays
    return [np.asarray(result) for result in results] if isinstance(results, list) else None


def _to_initializers(graph: ir.Graph, node: ir.Node, results: list[np.ndarray]) -> None:
    for output, array in zip(node.outputs, results, strict=True):
        if not output.uses() and not output.is_graph_output():
            continue
        name = output.name or "constant"
        output.name = f"{name}.folded"
        tensor = ir.tensor(np.array(array), name=name)
        value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
        graph.register_initializer(value)
        output.replace_all_uses_with(value, replace_graph_outputs=True)
    erase(node)
