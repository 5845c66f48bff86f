"""Turn products with a weight into Linear.

Requires: constants as initializers; merged views.
Ensures: MatMul(x, w) and Gemm(x, w, b) are Linear when w is derived from a parameter, of rank 2, and Gemm neither
transposes nor scales; a following Add of a derived bias [N] becomes its bias. A weight that was transposed is read as
[N, K]; one that was not (Conv1D) stays [K, N] with transposed=1. Counts Linears.
"""

from dataclasses import dataclass, replace

import onnx_ir as ir

from . import graph as g
from .derived import depends_on_parameter, is_derived


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


def fuse_linears(graph: ir.Graph) -> int:
    return sum(_fuse(node) for node in list(graph) if node.graph is not None)


def _fuse(node: ir.Node) -> bool:
    linear = _match(node)
    if linear is None:
        return False
    output, anchor = node.outputs[0], node
    add = g.sole_consumer(output)
    if linear.bias is None and add is not None and g.is_op(add, "Add"):
        bias = g.other_input(add, output)
        if _is_bias(bias, linear.n) and g.same_shape(output, add.outputs[0]):
            linear, output, anchor = replace(linear, bias=bias), add.outputs[0], add
    g.replace(output, linear_before(anchor, linear))
    return True


def _match(node: ir.Node) -> Linear | None:
    """`node` as a Linear, if it multiplies by a weight and its shapes are known."""
    is_gemm = g.is_op(node, "Gemm")
    if not is_gemm and not g.is_op(node, "MatMul"):
        return None
    x, factor = node.inputs[:2]
    if x is None or factor is None or not _is_weight(factor) or is_derived(x):
        return None
    weight, transposed = _untransposed(factor)
    bias = None
    if is_gemm:
        if any(node.attributes.get_float(name, 1.0) != 1.0 for name in ("alpha", "beta")):
            return None
        if node.attributes.get_int("transA", 0):
            return None
        if node.attributes.get_int("transB", 0):
            transposed = not transposed
        bias = g.optional_input(node, 2)
    linear = Linear(x, weight, bias, None, transposed, "", node)
    if bias is not None and not _is_bias(bias, linear.n):
        return None
    shape, output = g.dims(x), g.dims(node.outputs[0])
    return linear if shape is not None and len(shape) >= 2 and output == (*shape[:-1], linear.n) else None


def _is_weight(value: ir.Value) -> bool:
    shape = g.static_dims(value)
    return shape is not None and len(shape) == 2 and is_derived(value) and depends_on_parameter(value)


def _is_bias(value: ir.Value, n: int) -> bool:
    return g.static_dims(value) == (n,) and is_derived(value)


def _untransposed(factor: ir.Value) -> tuple[ir.Value, bool]:
    """The value behind a transpose of the right operand [K, N], and whether there was none."""
    producer = factor.producer()
    if producer is not None and g.is_op(producer, "Transpose") and producer.inputs[0] is not None:
        return producer.inputs[0], False
    return factor, True
