"""PyTorch's element-wise operators in ONNX."""

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from .convert import Converter, FxNode, Value, handles

_BINARY = {"mul": "Mul", "maximum": "Max", "minimum": "Min", "add": "Add", "sub": "Sub"}
_COMPARE = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}
_LOGICAL = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}
_UNARY = {
    "neg": "Neg",
    "abs": "Abs",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "reciprocal": "Reciprocal",
    "cos": "Cos",
    "sin": "Sin",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "relu": "Relu",
    "erf": "Erf",
    "floor": "Floor",
    "ceil": "Ceil",
    "round": "Round",
    "sign": "Sign",
}


def _dtype(argument: Any) -> Any:
    return argument.meta["val"] if isinstance(argument, Node) else argument


def _common(c: Converter, node: FxNode) -> tuple[Value, Value]:
    """Both operands in the dtype that PyTorch computes in."""
    a, b = node.args[0], node.args[1]
    dtype = torch.result_type(_dtype(a), _dtype(b))
    if isinstance(node.meta["val"], torch.Tensor) and node.meta["val"].is_floating_point():
        dtype = node.meta["val"].dtype
    return c.value(a, dtype), c.value(b, dtype)


def _does_nothing(name: str, node: FxNode) -> bool:
    """x * 1, x / 1, x + 0 and x - 0, with a number for the second operand and no change of dtype."""
    x, neutral = node.args[0], {"mul": 1, "div": 1, "add": 0, "sub": 0}.get(name)
    plain = isinstance(x, Node) and isinstance(node.args[1], (int, float)) and node.args[1] == neutral
    return plain and x.meta["val"].dtype == node.meta["val"].dtype


def _register_binary(name: str, operator: str) -> None:
    overloads = {
        "maximum": ["maximum", "max.other"],
        "minimum": ["minimum", "min.other"],
        "mul": ["mul.Tensor", "mul.Scalar", "multiply.Tensor"],
    }.get(name, [f"{name}.Tensor", f"{name}.Scalar"])

    @handles(*overloads)
    def _(c: Converter, node: FxNode) -> Value:
        if _does_nothing(name, node):
            return c.value(node.args[0])
        a, b = _common(c, node)
        alpha = node.kwargs.get("alpha", node.args[2] if len(node.args) > 2 else 1)
        if alpha != 1:
            b = c.emit("Mul", [b, c.value(alpha, node.meta["val"].dtype)], _dtype(node.args[1]))
        return c.emit(operator, [a, b])


def _register_compare(name: str, operator: str) -> None:
    @handles(f"{name}.Tensor", f"{name}.Scalar")
    def _(c: Converter, node: FxNode) -> Value:
        return c.emit(operator, _common(c, node))


def _register_unary(name: str, operator: str) -> None:
    @handles(name)
    def _(c: Converter, node: FxNode) -> Value:
        return c.emit(operator, [c.value(node.args[0], node.meta["val"].dtype)])


def _register_logical(name: str, operator: str) -> None:
    @handles(name)
    def _(c: Converter, node: FxNode) -> Value:
        return c.emit(operator, [c.value(argument, torch.bool) for argument in node.args])


def _register_all(table: dict[str, str], register: Callable[[str, str], None]) -> None:
    for name, operator in table.items():
        register(name, operator)


_register_all(_BINARY, _register_binary)
_register_all(_COMPARE, _register_compare)
_register_all(_UNARY, _register_unary)
_register_all(_LOGICAL, _register_logical)


@handles("ne.Tensor", "ne.Scalar")
def _ne(c: Converter, node: FxNode) -> Value:
    return c.emit("Not", [c.emit("Equal", _common(c, node))])


@handles("logical_not")
def _not(c: Converter, node: FxNode) -> Value:
    return c.emit("Not", [c.value(node.args[0], torch.bool)])


@handles("bitwise_not")
def _bitwise_not(c: Converter, node: FxNode) -> Value:
    return c.emit("Not" if node.meta["val"].dtype == torch.bool else "BitwiseNot", [node.args[0]])


@handles("bitwise_and.Tensor", "__and__.Tensor")
def _bitwise_and(c: Converter, node: FxNode) -> Value:
    return c.emit("And" if node.meta["val"].dtype == torch.bool else "BitwiseAnd", _common(c, node))


@handles("bitwise_or.Tensor", "__or__.Tensor")
def _bitwise_or(c: Converter, node: FxNode) -> Value:
    return c.emit("Or" if node.meta["val"].dtype == torch.bool else "BitwiseOr", _common(c, node))


@handles("rsub.Scalar", "rsub.Tensor")
def _rsub(c: Converter, node: FxNode) -> Value:
    a, b = _common(c, node)
    return c.emit("Sub", [b, a])


@handles("div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode")
def _div(c: Converter, node: FxNode) -> Value:
    if _does_nothing("div", node):
        return c.value(node.args[0])
    a, b = _common(c, node)
    mode = node.kwargs.get("rounding_mode")
    integers = not node.meta["val"].is_floating_point()
    if mode is None:
        return c.emit("Div", [a, b])
    if integers:
        return c.refuse("a rounded division of integers")
    quotient = c.emit("Div", [a, b])
    return c.emit("Floor", [quotient]) if mode == "floor" else c.refuse("a division rounded to zero")


@handles("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _pow(c: Converter, node: FxNode) -> Value:
    if node.args[1] == 2:
        x = c.value(node.args[0])
        return c.emit("Mul", [x, x])
    return c.emit("Pow", _common(c, node))


@handles("square")
def _square(c: Converter, node: FxNode) -> Value:
    x = c.value(node.args[0])
    return c.emit("Mul", [x, x])


@handles("rsqrt")
def _rsqrt(c: Converter, node: FxNode) -> Value:
    return c.emit("Reciprocal", [c.emit("Sqrt", [node.args[0]])])


@handles("expm1")
def _expm1(c: Converter, node: FxNode) -> Value:
    return c.emit("Sub", [c.emit("Exp", [node.args[0]]), c.value(1, node.meta["val"].dtype)])


@handles("log1p")
def _log1p(c: Converter, node: FxNode) -> Value:
    return c.emit("Log", [c.emit("Add", [node.args[0], c.value(1, node.meta["val"].dtype)])])


@handles("silu")
def _silu(c: Converter, node: FxNode) -> Value:
    x = c.value(node.args[0])
    return c.emit("Mul", [x, c.emit("Sigmoid", [x])])


@handles("gelu")
def _gelu(c: Converter, node: FxNode) -> Value:
    return c.emit("Gelu", [node.args[0]], approximate=node.kwargs.get("approximate", "none"))


@handles("softplus")
def _softplus(c: Converter, node: FxNode) -> Value:
    if any(argument != default for argument, default in zip(node.args[1:], (1, 20), strict=False)):
        return c.refuse("softplus with a beta or a threshold")
    return c.emit("Softplus", [node.args[0]])


@handles("log_sigmoid")
def _log_sigmoid(c: Converter, node: FxNode) -> Value:
    return c.emit("Neg", [c.emit("Softplus", [c.emit("Neg", [node.args[0]])])])


@handles("leaky_relu")
def _leaky_relu(c: Converter, node: FxNode) -> Value:
    return c.emit("LeakyRelu", [node.args[0]], alpha=float(node.args[1] if len(node.args) > 1 else 0.01))


@handles("elu")
def _elu(c: Converter, node: FxNode) -> Value:
    return c.emit("Elu", [node.args[0]], alpha=float(node.args[1] if len(node.args) > 1 else 1.0))


@handles("clamp", "clamp.Tensor", "hardtanh")
def _clamp(c: Converter, node: FxNode) -> Value:
    dtype = node.meta["val"].dtype
    bounds = dict(zip(("min", "max"), node.args[1:], strict=False)) | dict(node.kwargs)
    low, high = (None if bounds.get(k) is None else c.value(bounds[k], dtype) for k in ("min", "max"))
    return c.emit("Clip", [c.value(node.args[0], dtype), low, high])


@handles("clamp_min")
def _clamp_min(c: Converter, node: FxNode) -> Value:
    return c.emit("Max", _common(c, node))


@handles("clamp_max")
def _clamp_max(c: Converter, node: FxNode) -> Value:
    return c.emit("Min", _common(c, node))


@handles("where.self", "where.ScalarOther", "where.ScalarSelf")
def _where(c: Converter, node: FxNode) -> Value:
    dtype = node.meta["val"].dtype
    return c.emit("Where", [node.args[0], c.value(node.args[1], dtype), c.value(node.args[2], dtype)])


@handles("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(c: Converter, node: FxNode) -> Value:
    x, mask, fill = node.args
    return c.emit("Where", [mask, c.value(fill, node.meta["val"].dtype), x])


@handles("to.dtype", "to.dtype_layout", "to.device", "to.other", "_to_copy", "type_as")
def _to(c: Converter, node: FxNode) -> Value:
    return c.cast(node.args[0], node.meta["val"].dtype)


@handles("clone", "contiguous", "detach", "detach_", "alias", "lift_fresh_copy", "lift_fresh", "dropout", "positive")
def _identity(c: Converter, node: FxNode) -> Value:
    return c.value(node.args[0])
