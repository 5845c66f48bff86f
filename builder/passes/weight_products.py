"""Write matrix products with weights, on either side and of several heads, as Linears.

Requires: constants as initializers.
Ensures: no MatMul of activations with a matrix known at build time: W y is (y^T W^T)^T, and of heads that have a matrix
each, [H, K, N], every one is a Linear of its own. Counts the MatMuls rewritten.
"""

import math

import onnx_ir as ir

from . import graph as g
from .derived import is_derived
from .splits import split_before


def products_as_linears(graph: ir.Graph) -> int:
    return sum(_rewrite(node) for node in list(graph) if g.is_op(node, "MatMul"))


def _rewrite(node: ir.Node) -> bool:
    left, right = node.inputs
    assert left is not None
    assert right is not None
    if is_derived(left) == is_derived(right):
        return False
    if is_derived(right):
        product = _product(node, left, right)
    else:
        x, weight = _transposed(node, right), _transposed(node, left)
        turned = _product(node, x, weight)
        product = None if turned is None else _transposed(node, turned)
        for value in (x, weight):
            g.erase(value.producer())
    if product is None:
        return False
    g.replace(node.outputs[0], product)
    return True


def _product(anchor: ir.Node, x: ir.Value, weight: ir.Value) -> ir.Value | None:
    """x [..., M, K] times a weight [..., K, N] that is one for all, or one for each of x's first dimension."""
    shape, matrices = g.dims(x), g.static_dims(weight)
    if shape is None or matrices is None or len(shape) < max(len(matrices), 2) or len(matrices) < 2:
        return None
    count = math.prod(matrices[:-2])
    if count == 1:
        return _linear(anchor, x, weight, matrices[-2:])
    if len(matrices) != len(shape) or count != matrices[0] or shape[0] != count:
        return None
    inputs, weights = (split_before(anchor, value, 0, [1] * count).outputs for value in (x, weight))
    parts = [_linear(anchor, *pair, matrices[-2:]) for pair in zip(inputs, weights, strict=True)]
    return g.insert_before(anchor, "Concat", parts, [(*shape[:-1], matrices[-1])], {"axis": 0}).outputs[0]


def _linear(anchor: ir.Node, x: ir.Value, weight: ir.Value, matrix: tuple[int, ...]) -> ir.Value:
    shape = g.dims(x)
    assert shape is not None
    inputs = [x, g.reshape_before(anchor, weight, matrix)]
    attributes = {"transposed": 1, "activation": ""}
    made = g.insert_before(anchor, "Linear", inputs, [(*shape[:-1], matrix[-1])], attributes, domain=g.DOMAIN)
    return made.outputs[0]


def _transposed(anchor: ir.Node, value: ir.Value) -> ir.Value:
    """With its last two dimensions exchanged."""
    shape = g.dims(value)
    assert shape is not None
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    turned = tuple(shape[axis] for axis in order)
    return g.insert_before(anchor, "Transpose", [value], [turned], {"perm": order}).outputs[0]
