"""Give every value and node a name of its own.

Requires: nothing.
Ensures: names of values are unique, and so are names of nodes; inputs, outputs and initializers keep theirs. Counts
names changed.
"""

from collections.abc import Iterator

import onnx_ir as ir


def make_names_unique(graph: ir.Graph) -> int:
    fixed = [*graph.inputs, *graph.initializers.values(), *graph.outputs]
    inner = (v for node in graph for v in node.outputs if not v.is_graph_output())
    return _rename(inner, {str(value.name) for value in fixed}) + _rename(iter(graph), set())


def _rename(things: Iterator[ir.Value] | Iterator[ir.Node], taken: set[str]) -> int:
    changed = 0
    for thing in things:
        name, count = thing.name or "unnamed", 1
        while name in taken:
            name, count = f"{thing.name or 'unnamed'}_{count}", count + 1
        taken.add(name)
        if name != thing.name:
            thing.name = name
            changed += 1
    return changed
