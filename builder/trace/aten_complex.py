"""PyTorch's complex numbers in ONNX, as some rotary embeddings have them: with a last dimension of two parts."""

import torch
from torch.fx import Node

from .aten_shape import slice_axis
from .convert import COMPLEX, Converter, FxNode, Value, handles, is_complex


@handles("view_as_complex", "view_as_real", "to.device", "to.dtype_layout", "clone", table=COMPLEX)
def _identity(c: Converter, node: FxNode) -> Value:
    return c.value(node.args[0])


@handles("unsqueeze", "view", "reshape", table=COMPLEX)
def _reshape(c: Converter, node: FxNode) -> Value:
    return c.reshape(node.args[0])


@handles("slice.Tensor", table=COMPLEX)
def _whole(c: Converter, node: FxNode) -> Value:
    """x[:, None] is written with slices that take everything."""
    if c.dims(node.args[0].meta["val"].shape) != c.dims(node.meta["val"].shape):
        return c.refuse("a slice of complex numbers")
    return c.value(node.args[0])


@handles("polar", table=COMPLEX)
def _polar(c: Converter, node: FxNode) -> Value:
    size, angle = node.args
    like = angle.meta["val"]
    parts = [c.emit("Mul", [size, c.emit(name, [angle], like)], like) for name in ("Cos", "Sin")]
    return _joined(c, parts, like)


def _joined(c: Converter, parts: list[Value], like: torch.Tensor) -> Value:
    """Real and imaginary part as one value."""
    return c.emit("Concat", [c.reshape(part, like.unsqueeze(-1)) for part in parts], axis=like.ndim)


def _parts(c: Converter, x: FxNode) -> list[Value]:
    """The real and the imaginary part of a complex value."""
    like = torch.view_as_real(x.meta["val"])
    one = like.narrow(-1, 0, 1)
    cut = [slice_axis(c, c.value(x), like.ndim - 1, part, part + 1, 1, one) for part in (0, 1)]
    return [c.reshape(part, one.squeeze(-1)) for part in cut]


@handles("mul.Tensor", "mul.Scalar", table=COMPLEX)
def _multiplied(c: Converter, node: FxNode) -> Value:
    """The product of two values, one of which is complex at least."""
    x, y = node.args if isinstance(node.args[0], Node) and is_complex(node.args[0]) else reversed(node.args)
    result = torch.view_as_real(node.meta["val"]).select(-1, 0)
    a, b = _parts(c, x)
    if not isinstance(y, Node) or not is_complex(y):
        factor = c.value(y, result.dtype)
        return _joined(c, [c.emit("Mul", [part, factor], result) for part in (a, b)], result)
    p, q = _parts(c, y)
    products = [c.emit("Mul", pair, result) for pair in ((a, p), (b, q), (a, q), (b, p))]
    ends = [c.emit("Sub", products[:2], result), c.emit("Add", products[2:], result)]
    return _joined(c, ends, result)
