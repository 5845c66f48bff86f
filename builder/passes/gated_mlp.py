"""Fuse act(gate(x)) * up(x) into GatedMLP.

Requires: Linears (linear pass), Splits (splits pass).
Ensures: a product of an activated projection and a plain projection of the same x, of one size, is a GatedMLP, when
nothing else reads either. A projection is a plain Linear, or a half of one that is Split in two on its last axis: then
the halves of its weight and bias become derived Slices, whichever half is activated. Counts GatedMLPs.
"""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ...plugins.linear.activation_function import ActivationFunction
from . import graph as g
from .activation_functions import recognise
from .linear import Linear, read_linear


@dataclass(frozen=True)
class Projection:
    """Rows [first, last) of a Linear's weight applied to its x."""

    linear: Linear
    first: int
    last: int


def fuse_gated_mlps(graph: ir.Graph) -> int:
    return sum(_fuse(node) for node in list(graph) if node.graph is not None)


def _fuse(node: ir.Node) -> bool:
    """Starts from the projection to be activated, `node` being a Linear or the Split of one."""
    return any(_fuse_gate(output) for output in node.outputs if _projection(output) is not None)


def _fuse_gate(gate_value: ir.Value) -> bool:
    activated = recognise(gate_value)
    if activated is None:
        return False
    activation, result = activated
    product = g.sole_consumer(result)
    if product is None or not g.is_op(product, "Mul"):
        return False
    up_value = g.other_input(product, result)
    gate, up = _projection(gate_value), _projection(up_value)
    if gate is None or up is None or g.sole_consumer(up_value) is not product or not _match(gate, up):
        return False
    g.replace(product.outputs[0], _gated_mlp_before(product, activation, gate, up))
    return True


def _match(gate: Projection, up: Projection) -> bool:
    return gate.linear.x is up.linear.x and gate.last - gate.first == up.last - up.first


def _projection(value: ir.Value) -> Projection | None:
    """`value` as a projection that can be taken over, its Linear having no other reader."""
    node = value.producer()
    linear = read_linear(node)
    if linear is not None:
        return Projection(linear, 0, linear.n) if linear.is_plain else None
    if node is None or not g.is_op(node, "Split") or len(node.outputs) != 2 or node.inputs[0] is None:
        return None
    linear = read_linear(node.inputs[0].producer())
    if linear is None or not linear.is_plain or g.sole_consumer(linear.output) is not node:
        return None
    if not g.is_last_axis(node.attributes.get_int("axis", 0), linear.output) or not g.same_shape(*node.outputs):
        return None
    half = linear.n // 2
    return Projection(linear, half * (value.index() or 0), half * ((value.index() or 0) + 1))


def _gated_mlp_before(anchor: ir.Node, activation: ActivationFunction, gate: Projection, up: Projection) -> ir.Value:
    x, shape = gate.linear.x, g.dims(gate.linear.x)
    assert shape is not None
    node = g.insert_before(
        anchor,
        "GatedMLP",
        [x, _weight(anchor, gate), _weight(anchor, up), _bias(anchor, gate), _bias(anchor, up)],
        [(*shape[:-1], gate.last - gate.first)],
        {"activation": activation.value},
        domain=g.DOMAIN,
        name=g.module_name([gate.linear.weight, up.linear.weight], gate.linear.node.name),
    )
    return node.outputs[0]


def _weight(anchor: ir.Node, projection: Projection) -> ir.Value:
    """The projection's weight as [N, K]."""
    linear = projection.linear
    if not linear.transposed:
        return _part(anchor, linear.weight, projection, 0)
    columns = _part(anchor, linear.weight, projection, 1)
    name, shape = f"{columns.name}.T", (projection.last - projection.first, linear.k)
    weight = g.insert_before(anchor, "Transpose", [columns], [shape], {"perm": [1, 0]}, name=name).outputs[0]
    weight.name = name
    return weight


def _bias(anchor: ir.Node, projection: Projection) -> ir.Value | None:
    bias = projection.linear.bias
    return None if bias is None else _part(anchor, bias, projection, 0)


def _part(anchor: ir.Node, value: ir.Value, projection: Projection, axis: int) -> ir.Value:
    """The projection's range of `value` along `axis`."""
    shape = g.static_dims(value)
    assert shape is not None
    assert anchor.graph is not None
    if (projection.first, projection.last) == (0, shape[axis]):
        return value
    bounds = [
        g.add_constant(anchor.graph, np.array([number], np.int64), f"index_{number}")
        for number in (projection.first, projection.last, axis)
    ]
    size = projection.last - projection.first
    name = f"{value.name}[{':, ' * axis}{projection.first}:{projection.last}]"
    part_shape = (*shape[:axis], size, *shape[axis + 1 :])
    part = g.insert_before(anchor, "Slice", [value, *bounds], [part_shape], name=name).outputs[0]
    part.name = name
    return part
