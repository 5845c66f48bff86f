"""Reading and making Linear nodes."""

from dataclasses import dataclass

import onnx_ir as ir

from . import graph as g


@dataclass(frozen=True)
class Linear:
    """What a Linear node computes: y = act(x W^T + b) + residual, W [N, K], or [K, N] if `transposed`."""

    x: ir.Value
    weight: ir.Value
    bias: ir.Value | None
    residual: ir.Value | None
    transposed: bool
    activation: str
    node: ir.Node

    @property
    def output(self) -> ir.Value:
        return self.node.outputs[0]

    @property
    def n(self) -> int:
        shape = g.static_dims(self.weight)
        assert shape is not None
        return shape[1 if self.transposed else 0]

    @property
    def k(self) -> int:
        shape = g.static_dims(self.weight)
        assert shape is not None
        return shape[0 if self.transposed else 1]

    @property
    def is_plain(self) -> bool:
        """Whether nothing follows the bias."""
        return self.residual is None and not self.activation


def read_linear(node: ir.Node | None) -> Linear | None:
    """The Linear that `node` is, if it is one."""
    if node is None or not g.is_op(node, "Linear", domain=g.DOMAIN):
        return None
    x, weight = node.inputs[:2]
    assert x is not None
    assert weight is not None
    return Linear(
        x,
        weight,
        g.optional_input(node, 2),
        g.optional_input(node, 3),
        bool(node.attributes.get_int("transposed", 0)),
        node.attributes.get_string("activation", ""),
        node,
    )


def linear_before(anchor: ir.Node, linear: Linear, name: str | None = None) -> ir.Value:
    """Make a Linear node like `linear` and put it before `anchor`; its output has the shape [..., N] of x."""
    shape = g.dims(linear.x)
    assert shape is not None
    node = g.insert_before(
        anchor,
        "Linear",
        [linear.x, linear.weight, linear.bias, linear.residual],
        [(*shape[:-1], linear.n)],
        {"transposed": int(linear.transposed), "activation": linear.activation},
        domain=g.DOMAIN,
        name=name or g.module_name([linear.weight], linear.node.name),
    )
    return node.outputs[0]
