"""Compute equal things once: the cosines and sines that all layers share, above all.

Requires: nodes in topological order.
Ensures: no two constants with the same data (small ones), and no two nodes with the same operation, attributes and
inputs (either order for Add and Mul), except those with state (attention writes its cache) and outputs of the graph.
Counts nodes removed.
"""

from collections.abc import Hashable
from typing import Any

import onnx_ir as ir

from ..operations import traits_of
from .graph import constant, erase

MAX_ELEMENTS = 1 << 16


def eliminate_common_subexpressions(graph: ir.Graph) -> int:
    _share_constants(graph)
    seen: dict[Hashable, ir.Node] = {}
    count = 0
    for node in list(graph):
        key = _key(node)
        if key is None:
            continue
        first = seen.setdefault(key, node)
        if first is not node and not any(output.is_graph_output() for output in node.outputs):
            for old, new in zip(node.outputs, first.outputs, strict=True):
                old.replace_all_uses_with(new)
            erase(node)
            count += 1
    return count


def _share_constants(graph: ir.Graph) -> None:
    seen: dict[Hashable, ir.Value] = {}
    for name, value in list(graph.initializers.items()):
        array = constant(value)
        if array is None or array.size > MAX_ELEMENTS or value.is_graph_output():
            continue
        first = seen.setdefault((array.dtype.str, array.shape, array.tobytes()), value)
        if first is not value:
            value.replace_all_uses_with(first)
            del graph.initializers[name]


def _key(node: ir.Node) -> Hashable | None:
    if traits_of(node).is_stateful:
        return None
    attributes = []
    for attribute in sorted(node.attributes.values(), key=lambda a: a.name):
        if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
            return None
        attributes.append((attribute.name, _hashable(attribute.value)))
    inputs = [id(value) for value in node.inputs]
    if node.domain == "" and node.op_type in ("Add", "Mul"):
        inputs.sort()
    return node.domain, node.op_type, tuple(inputs), tuple(attributes), len(node.outputs)


def _hashable(value: Any) -> Hashable:
    if isinstance(value, ir.TensorProtocol):
        array = value.numpy()
        return array.dtype.str, array.shape, array.tobytes()
    return tuple(value) if isinstance(value, (list, tuple)) else str(value)
