"""Let a Linear add the residual to its output, which saves a pass over memory.

Requires: Linears, with their activations.
Ensures: an Add of a plain Linear, read by nothing else, and a value of exactly the same shape is the Linear's residual;
of two such Linears the later one takes the other as its residual. Where a Linear has another's output as residual and
is added to a third value, the other Linear takes it: (a + b) + x becomes a + (b + x), equal up to rounding.
Counts Adds removed.
"""

from dataclasses import replace

import onnx_ir as ir

from . import graph as g
from .linear import Linear, linear_before, read_linear


def fuse_residuals(graph: ir.Graph) -> int:
    order = {node: position for position, node in enumerate(graph)}
    count = sum(_fuse(node, order) for node in list(graph) if g.is_op(node, "Add"))
    if count:
        graph.sort()
    return count


def _fuse(add: ir.Node, order: dict[ir.Node, int]) -> bool:
    output = add.outputs[0]
    candidates: list[tuple[int, Linear, ir.Value]] = []
    for value in add.inputs:
        if value is None or not g.same_type(value, output):
            return False
        linear = _absorber(value, add)
        if linear is not None:
            candidates.append((order[linear.node], linear, value))
    if not candidates:
        return False
    _, linear, value = max(candidates, key=lambda candidate: candidate[0])
    fused = linear_before(add, replace(linear, residual=g.other_input(add, value)), linear.node.name)
    order[fused.producer()] = order[add]  # type: ignore[index]
    is_direct = value is linear.output
    if not is_direct:
        g.replace(linear.output, fused)
    g.replace(output, fused if is_direct else value)
    return True


def _absorber(value: ir.Value, reader: ir.Node) -> Linear | None:
    """The plain Linear at the start of the chain of residuals that ends in `value`, all read only along the chain."""
    linear = read_linear(value.producer())
    if linear is None or linear.activation or g.sole_consumer(value) is not reader:
        return None
    return linear if linear.residual is None else _absorber(linear.residual, linear.node)
