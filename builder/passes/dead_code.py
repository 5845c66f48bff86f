"""Remove what nothing reads.

Requires: nodes in topological order.
Ensures: every node has an output that is read or is an output of the graph, and every constant is read. Parameters
stay even when unread: a checkpoint is still expected to have them. Counts nodes.
"""

import onnx_ir as ir

from .graph import constant


def eliminate_dead_code(graph: ir.Graph) -> int:
    count = 0
    for node in reversed(list(graph)):
        if not any(output.uses() or output.is_graph_output() for output in node.outputs):
            graph.remove(node, safe=True)
            count += 1
    for name, value in list(graph.initializers.items()):
        if constant(value) is not None and not value.uses() and not value.is_graph_output():
            del graph.initializers[name]
    return count
