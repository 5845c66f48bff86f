"""The operations of the network: what tracing may emit, and every target lowers. docs/network.md prints this table.

Those of plugins describe themselves; here are the standard ones, with their meaning in ONNX.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

import onnx_ir as ir

from ..plugins.discovery import operations as plugin_operations
from ..plugins.plugin import DOMAIN, Traits


@dataclass(frozen=True)
class Group:
    """Standard operations that are alike."""

    title: str
    doc: str
    names: tuple[str, ...]
    traits: Traits


_ELEMENTWISE = Traits(elementwise=True)
_SCALED = Traits(elementwise=True, is_homogeneous=True)

GROUPS = (
    Group(
        "Arithmetic",
        "of elements of inputs that broadcast",
        (
            "Add", "Sub", "Mul", "Pow", "Reciprocal", "Sqrt", "Exp", "Log", "Sin", "Cos", "Min", "Max", "Clip", "Floor",
            "Ceil", "Round", "Sign", "BitwiseAnd", "BitwiseOr", "BitwiseNot",
        ),
        _ELEMENTWISE,
    ),
    Group("Scaling", "of elements, proportional to the first input", ("Abs", "Cast", "Div", "Neg"), _SCALED),
    Group(
        "Comparison and choice",
        "of elements of inputs that broadcast",
        ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor", "Not", "Where"),
        _ELEMENTWISE,
    ),
    Group("Activation functions", "of elements", ("Elu", "Erf", "Gelu", "Sigmoid", "Softplus", "Tanh"), _ELEMENTWISE),
    Group("Rectifiers", "of elements; proportional to positive factors", ("LeakyRelu", "Relu"), _SCALED),
    Group(
        "Normalization",
        "over the last axis",
        ("LayerNormalization",),
        Traits(row_inputs=(0,), scale_inputs=(1, 2)),
    ),
    Group(
        "Reduction",
        "along axes that are not tokens",
        ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceLogSumExp", "ArgMax"),
        Traits(),
    ),
    Group("Functions along an axis", "that is not tokens", ("Softmax", "LogSoftmax", "CumSum", "TopK"), Traits()),
    Group("Matrix product", "of two values computed in a step", ("MatMul",), Traits(is_matmul=True)),
    Group(
        "Layout",
        "tokens stay together and in order",
        ("Reshape", "Transpose", "Split", "Slice", "Concat", "Tile", "Pad"),
        Traits(),
    ),
    Group("Broadcast", "to a shape", ("Expand",), Traits(is_homogeneous=True)),
    Group(
        "Choice of elements",
        "Gather takes rows of a table, or of the tokens those whose logits are wanted",
        ("Gather", "GatherElements", "ScatterElements"),
        Traits(),
    ),
)  # fmt: skip


@cache
def standard_operations() -> Mapping[str, Traits]:
    """The traits of every standard operation, by name."""
    return MappingProxyType({name: group.traits for group in GROUPS for name in group.names})


def all_operations() -> set[tuple[str, str]]:
    """(domain, name) of every operation a network may hold."""
    return {("", name) for name in standard_operations()} | {(DOMAIN, name) for name in plugin_operations()}


def traits_of(node: ir.Node) -> Traits:
    """The traits of a node's operation; none of an operation that is not known."""
    if node.domain == DOMAIN:
        known = plugin_operations().get(node.op_type)
        return Traits() if known is None else known.traits
    return standard_operations().get(node.op_type, Traits()) if node.domain == "" else Traits()
