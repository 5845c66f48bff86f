"""Let a Linear apply the activation function that follows it.

Requires: Linears; gated MLPs already fused, so that their gates are not taken.
Ensures: a plain Linear whose output is read only by an activation function applies it itself. Counts Linears changed.
"""

from dataclasses import replace

import onnx_ir as ir

from . import graph as g
from .activation_functions import recognise
from .linear import linear_before, read_linear


def fuse_activations(graph: ir.Graph) -> int:
    return sum(_fuse(node) for node in list(graph) if node.graph is not None)


def _fuse(node: ir.Node) -> bool:
    linear = read_linear(node)
    activated = recognise(linear.output) if linear is not None and linear.is_plain else None
    if linear is None or activated is None:
        return False
    activation, result = activated
    g.replace(result, linear_before(node, replace(linear, activation=activation.value), node.name))
    return True
