"""Element-wise operations: they become expressions, emitted when something needs them in memory."""

import onnx_ir as ir

from .expressions import OPS, Expr, Operand, Scalar
from .facts import Unsupported
from .kernels import lowers
from .lowering import Lowering
from .nodes import float_attribute, str_attribute
from .views import DType

_PLAIN = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Neg": "neg", "Abs": "abs", "Sqrt": "sqrt",
    "Reciprocal": "reciprocal", "Exp": "exp", "Log": "log", "Sin": "sin", "Cos": "cos", "Tanh": "tanh", "Erf": "erf",
    "Floor": "floor", "Ceil": "ceil", "Round": "round", "Sigmoid": "sigmoid", "Relu": "relu", "Softplus": "softplus",
    "Sign": "sign", "Where": "where", "Equal": "equal", "Less": "less", "LessOrEqual": "less_equal",
    "Greater": "greater", "GreaterOrEqual": "greater_equal", "And": "and", "Or": "or", "Xor": "xor", "Not": "not",
    "BitwiseAnd": "bit_and", "BitwiseOr": "bit_or", "BitwiseNot": "bit_not",
}  # fmt: skip


@lowers(*_PLAIN)
def _plain(lowering: Lowering, node: ir.Node) -> None:
    _set(lowering, node, _PLAIN[node.op_type], *_operands(lowering, node))


@lowers("Min", "Max")
def _extreme(lowering: Lowering, node: ir.Node) -> None:
    result, *rest = _operands(lowering, node)
    for other in rest:
        result = _expression(lowering, node, node.op_type.lower(), result, other)
    lowering.values.assign(node.outputs[0], result)


@lowers("Pow")
def _pow(lowering: Lowering, node: ir.Node) -> None:
    base, exponent = _operands(lowering, node)
    power = exponent.value if isinstance(exponent, Scalar) else None
    square = _expression(lowering, node, "mul", base, base)
    if power == 2:
        lowering.values.assign(node.outputs[0], square)
    elif power == 3:
        _set(lowering, node, "mul", square, base)
    elif power == 0.5:
        _set(lowering, node, "sqrt", base)
    elif power == -0.5:
        _set(lowering, node, "reciprocal", _expression(lowering, node, "sqrt", base))
    else:
        _set(lowering, node, "pow", base, exponent)


@lowers("Gelu")
def _gelu(lowering: Lowering, node: ir.Node) -> None:
    exact = str_attribute(node, "approximate", "none") == "none"
    _set(lowering, node, "gelu" if exact else "gelu_tanh", *_operands(lowering, node))


@lowers("Clip")
def _clip(lowering: Lowering, node: ir.Node) -> None:
    result, *limits = [None if value is None else lowering.values.operand(value) for value in node.inputs]
    if result is None:
        raise Unsupported("its first input is absent")
    for op, limit in zip(("max", "min"), limits, strict=False):
        if limit is not None:
            result = _expression(lowering, node, op, result, limit)
    lowering.values.assign(node.outputs[0], result)


@lowers("LeakyRelu", "Elu")
def _with_slope(lowering: Lowering, node: ir.Node) -> None:
    (x,) = _operands(lowering, node)
    dtype, shape = lowering.facts.dtype(node.outputs[0]), lowering.facts.shape(node.outputs[0])
    if node.op_type == "LeakyRelu":
        negative, slope = x, float_attribute(node, "alpha", 0.01)
    else:
        grown = _expression(lowering, node, "exp", x)
        negative = _expression(lowering, node, "sub", grown, Scalar(1.0, dtype))
        slope = float_attribute(node, "alpha", 1.0)
    negative = _expression(lowering, node, "mul", negative, Scalar(slope, dtype))
    positive = Expr("greater", (x, Scalar(0.0, dtype)), DType.BOOL, shape)
    _set(lowering, node, "where", positive, x, negative)


@lowers("Cast", data=(0,))
def _cast(lowering: Lowering, node: ir.Node) -> None:
    """float16, bfloat16 and double are float32 here, so that most casts vanish."""
    (x,) = _operands(lowering, node)
    if x.dtype is lowering.facts.dtype(node.outputs[0]):
        lowering.values.assign(node.outputs[0], x)
    else:
        _set(lowering, node, "cast", x)


def _operands(lowering: Lowering, node: ir.Node) -> list[Operand]:
    return [lowering.values.operand(value) for value in node.inputs if value is not None]


def _expression(lowering: Lowering, node: ir.Node, op: str, *args: Operand) -> Expr:
    """`op` of operands, with the shape and type of the node's output."""
    out = node.outputs[0]
    return Expr(op, args, OPS[op] or lowering.facts.dtype(out), lowering.facts.shape(out))


def _set(lowering: Lowering, node: ir.Node, op: str, *args: Operand) -> None:
    lowering.values.assign(node.outputs[0], _expression(lowering, node, op, *args))
