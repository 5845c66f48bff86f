"""Merge Linears that read the same input (queries, keys and values) into one.

Requires: gated MLPs, activations and residuals already fused: what is left is plain.
Ensures: no two plain Linears, equally transposed, read the same value, routers of experts apart, whose weights are
stored otherwise: one Linear over a derived Concat of their
weights and biases (zeros where one has none) does, and a Split on the last axis hands out its parts. Counts Linears.
"""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from . import graph as g
from .linear import Linear, linear_before, read_linear
from .router import is_router
from .splits import split_before


def merge_linears(graph: ir.Graph) -> int:
    groups: dict[tuple[ir.Value, bool, bool], list[Linear]] = defaultdict(list)
    for node in graph:
        linear = read_linear(node)
        if linear is not None and linear.is_plain and not linear.output.is_graph_output():
            groups[linear.x, linear.transposed, is_router(linear.output)].append(linear)
    return sum(_merge(graph, group) for group in groups.values() if len(group) > 1)


def _merge(graph: ir.Graph, group: list[Linear]) -> int:
    anchor = group[0].node
    name = g.module_name([linear.weight for linear in group], anchor.name)
    weights = [linear.weight for linear in group]
    weight = _concat(anchor, weights, 1 if group[0].transposed else 0, f"{name}.weight")
    bias = None
    if any(linear.bias is not None for linear in group):
        bias = _concat(anchor, [linear.bias or _zeros(graph, linear.n) for linear in group], 0, f"{name}.bias")
    merged = linear_before(anchor, replace(group[0], weight=weight, bias=bias), name)
    merged.name = name
    shape = g.dims(merged)
    assert shape is not None
    split = split_before(anchor, merged, len(shape) - 1, [linear.n for linear in group])
    for part, linear in zip(split.outputs, group, strict=True):
        g.replace(linear.output, part)
    return len(group)


def _concat(anchor: ir.Node, values: list[ir.Value], axis: int, name: str) -> ir.Value:
    shapes = [g.static_dims(value) or () for value in values]
    shape = list(shapes[0])
    shape[axis] = sum(shape[axis] for shape in shapes)
    value = g.insert_before(anchor, "Concat", values, [tuple(shape)], {"axis": axis}, name=name).outputs[0]
    value.name = name
    return value


def _zeros(graph: ir.Graph, n: int) -> ir.Value:
    return g.add_constant(graph, np.zeros(n, np.float32), f"zeros_{n}")
