"""Element-wise operations: they become expressions, emitted when something needs them in memory."""

import onnx_ir as ir

from .dims import Shape
from .expressions import FORMS, Expr, Operand, Scalar
from .lowering import Lowering, Unsupported, float_attribute, int_attribute, lowers, str_attribute
from .views import DType

_PLAIN = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Neg": "neg", "Abs": "abs", "Sqrt": "sqrt",
    "Reciprocal": "reciprocal", "Exp": "exp", "Log": "log", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Tanh": "tanh",
    "Erf": "erf", "Floor": "floor", "Ceil": "ceil", "Round": "round", "Sigmoid": "sigmoid", "Relu": "relu",
    "Softplus": "softplus", "Sign": "sign", "IsNaN": "is_nan", "Where": "where", "Equal": "equal", "Less": "less",
    "LessOrEqual": "less_equal", "Greater": "greater", "GreaterOrEqual": "greater_equal", "And": "and", "Or": "or",
    "Xor": "xor", "Not": "not",
}  # fmt: skip


@lowers(*_PLAIN)
def _plain(lowering: Lowering, node: ir.Node) -> None:
    _set(lowering, node, _PLAIN[node.op_type], *_operands(lowering, node))


@lowers("Min", "Max", "Sum")
def _variadic(lowering: Lowering, node: ir.Node) -> None:
    op = {"Min": "min", "Max": "max", "Sum": "add"}[node.op_type]
    out = node.outputs[0]
    result, *rest = _operands(lowering, node)
    for other in rest:
        result = Expr(op, (result, other), lowering.dtype(out), lowering.shape(out))
    lowering.assign(out, result)


@lowers("Pow")
def _pow(lowering: Lowering, node: ir.Node) -> None:
    base, exponent = _operands(lowering, node)
    power = exponent.value if isinstance(exponent, Scalar) else None
    shape, dtype = lowering.shape(node.outputs[0]), lowering.dtype(node.outputs[0])
    square = Expr("mul", (base, base), dtype, shape)
    if power == 2:
        lowering.assign(node.outputs[0], square)
    elif power == 3:
        _set(lowering, node, "mul", square, base)
    elif power == 0.5:
        _set(lowering, node, "sqrt", base)
    elif power == -0.5:
        _set(lowering, node, "reciprocal", Expr("sqrt", (base,), dtype, shape))
    else:
        _set(lowering, node, "pow", base, exponent)


@lowers("Gelu")
def _gelu(lowering: Lowering, node: ir.Node) -> None:
    exact = str_attribute(node, "approximate", "none") == "none"
    _set(lowering, node, "gelu" if exact else "gelu_tanh", *_operands(lowering, node))


@lowers("Mod")
def _mod(lowering: Lowering, node: ir.Node) -> None:
    floating = lowering.dtype(node.outputs[0]) is DType.F32
    if floating and not int_attribute(node, "fmod", 0):
        raise Unsupported("Mod of floats needs fmod=1")
    _set(lowering, node, "fmod" if floating else "mod", *_operands(lowering, node))


@lowers("Clip")
def _clip(lowering: Lowering, node: ir.Node) -> None:
    out = node.outputs[0]
    result, *limits = [None if value is None else lowering.operand(value) for value in node.inputs]
    if result is None:
        raise Unsupported("its first input is absent")
    for op, limit in zip(("max", "min"), limits, strict=False):
        if limit is not None:
            result = Expr(op, (result, limit), lowering.dtype(out), lowering.shape(out))
    lowering.assign(out, result)


@lowers("LeakyRelu", "Elu", "HardSigmoid")
def _with_slope(lowering: Lowering, node: ir.Node) -> None:
    (x,) = _operands(lowering, node)
    dtype, shape = lowering.dtype(node.outputs[0]), lowering.shape(node.outputs[0])
    zero, one = Scalar(0.0, dtype), Scalar(1.0, dtype)
    if node.op_type == "LeakyRelu":
        negative = Expr("mul", (x, Scalar(float_attribute(node, "alpha", 0.01), dtype)), dtype, shape)
    elif node.op_type == "Elu":
        less_one = Expr("sub", (Expr("exp", (x,), dtype, shape), one), dtype, shape)
        negative = Expr("mul", (less_one, Scalar(float_attribute(node, "alpha", 1.0), dtype)), dtype, shape)
    else:
        slope, offset = (Scalar(float_attribute(node, n, d), dtype) for n, d in (("alpha", 0.2), ("beta", 0.5)))
        line = Expr("add", (Expr("mul", (x, slope), dtype, shape), offset), dtype, shape)
        _set(lowering, node, "min", Expr("max", (line, zero), dtype, shape), one)
        return
    positive = Expr("greater", (x, zero), DType.BOOL, shape)
    _set(lowering, node, "where", positive, x, negative)


@lowers("Cast", data=(0,))
def _cast(lowering: Lowering, node: ir.Node) -> None:
    """float16, bfloat16 and double are float32 here, so that most casts vanish."""
    (x,) = _operands(lowering, node)
    if x.dtype is lowering.dtype(node.outputs[0]):
        lowering.assign(node.outputs[0], x)
    else:
        _set(lowering, node, "cast", x)


@lowers("CastLike", data=(0,))
def _cast_like(lowering: Lowering, node: ir.Node) -> None:
    _cast(lowering, node)


def outer_product(lowering: Lowering, out: ir.Value, a: Operand, b: Operand) -> None:
    """A matrix product over a dimension of one: it broadcasts like a multiplication."""
    lowering.assign(out, Expr("mul", (a, b), lowering.dtype(out), lowering.shape(out)))


def _operands(lowering: Lowering, node: ir.Node) -> list[Operand]:
    return [lowering.operand(value) for value in node.inputs if value is not None]


def _set(lowering: Lowering, node: ir.Node, op: str, *args: Operand) -> None:
    out = node.outputs[0]
    shape: Shape = lowering.shape(out)
    lowering.assign(out, Expr(op, tuple(args), FORMS[op].result or lowering.dtype(out), shape))
