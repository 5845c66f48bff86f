"""Carry the channels of a value back through the network, to the parameters that multiply it.

Every element of a value has a channel (or none), the same for all tokens: an array of the value's shape with 1 for the
tokens. Going back, each operation passed is linear or positively homogeneous in what is followed, f(x / s) = f(x) / s,
and nothing else reads that. The way ends at a norm's weight, at rows of a linear layer, or at a factor.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ..operations import traits_of
from ..passes import graph as g
from ..passes import numpy_ops
from ..passes.derived import is_derived

UNSCALED = -1  # the channel of an element that is to stay as it is


@dataclass(frozen=True)
class Divisor:
    """A parameter p that becomes (p + offset) / scale[channels] - offset.

    `channels`: int, of a shape that broadcasts to the parameter's; UNSCALED leaves an element as it is.
    """

    parameter: str
    channels: np.ndarray
    offset: float = 0.0


@dataclass(frozen=True)
class Absorbed:
    """What has to be divided, and arrays [n, 2] of pairs of channels that must get equal scales."""

    divisors: tuple[Divisor, ...] = ()
    ties: tuple[np.ndarray, ...] = ()


def channels_shape(value: ir.Value) -> tuple[int, ...] | None:
    """The shape with 1 for every symbolic dimension, which are those of tokens."""
    shape = g.dims(value)
    return None if shape is None else tuple(size if isinstance(size, int) else 1 for size in shape)


def absorb_in_producer(value: ir.Value, channels: np.ndarray) -> Absorbed | None:
    """What absorbs a scale of a value's `channels`, whoever reads it; None where something in between prevents it."""
    node = value.producer()
    rule = None if node is None else _rule_of(node)
    return None if node is None or rule is None else rule(node, value, channels)


def _rule_of(node: ir.Node) -> "Rule | None":
    """How a scale passes an operation: what its traits say, or a rule of those that compute with several values."""
    traits = traits_of(node)
    if traits.scale_inputs:
        return _parameters
    if traits.linear_input is not None:
        return _attention
    if traits.is_homogeneous:
        return _homogeneous
    return _RULES.get(node.op_type) if node.domain == "" else None


def _absorb(value: ir.Value | None, channels: np.ndarray) -> Absorbed | None:
    """The same for an operand, which may broadcast to the shape of `channels`, with a single reader."""
    shape = None if value is None else channels_shape(value)
    narrowed = None if shape is None else _narrow(channels, shape)
    if value is None or narrowed is None or g.sole_consumer(value) is None:
        return None
    channels, ties = narrowed
    absorbed = _divide(value, channels) if is_derived(value) else absorb_in_producer(value, channels)
    return None if absorbed is None else _join(absorbed, Absorbed(ties=(ties,)))


def _narrow(channels: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray] | None:
    """The channels of an operand of `shape` that was broadcast, and the pairs of them that became one element."""
    aligned = (1,) * (channels.ndim - len(shape)) + shape
    if any(size not in (1, full) for size, full in zip(aligned, channels.shape, strict=True)):
        return None
    axes = tuple(axis for axis, size in enumerate(aligned) if size == 1)
    first = channels.min(axis=axes, keepdims=True)
    if np.any((channels == UNSCALED) != (first == UNSCALED)):
        return None
    pairs = np.stack(np.broadcast_arrays(first, channels), axis=-1)[channels != first]
    return first.reshape(shape), pairs


def _divide(value: ir.Value | None, channels: np.ndarray, offset: float = 0.0) -> Absorbed | None:
    """Division of a parameter, or of one plus a number, that nothing else reads."""
    if value is None or g.sole_consumer(value) is None:
        return None
    if g.is_parameter(value):
        return Absorbed((Divisor(str(value.name), channels, offset),))
    node = value.producer()
    if node is not None and g.is_op(node, "Add"):
        for operand in node.inputs:
            number = None if operand is None else g.scalar(operand)
            if operand is not None and number is not None and g.same_shape(g.other_input(node, operand), value):
                return _divide(g.other_input(node, operand), channels, offset + number)
    return None


def _join(*parts: Absorbed | None) -> Absorbed | None:
    """All of them, None if one is."""
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    return Absorbed(
        tuple(divisor for part in found for divisor in part.divisors), tuple(t for part in found for t in part.ties)
    )


# Rules: (node, its output that is divided, the channels of that output) -> what absorbs them.


def _parameters(node: ir.Node, value: ir.Value, channels: np.ndarray) -> Absorbed | None:
    """Of an operation that is proportional to parameters, if nothing else is added or applied to its result."""
    positions = traits_of(node).scale_inputs
    others = [i for i, each in enumerate(node.inputs) if each is not None and i not in (0, *positions)]
    found = [each for each in (g.optional_input(node, position) for position in positions) if each is not None]
    narrowed = _narrow(channels, channels.shape[-1:])
    is_plain = not others and not node.attributes.get_string("activation", "")
    if not is_plain or not found or narrowed is None or not g.is_last_axis(node.attributes.get_int("axis", -1), value):
        return None
    rows, ties = narrowed
    offset = node.attributes.get_float("offset", 0.0)
    is_transposed = bool(node.attributes.get_int("transposed", 0))
    divided = [_divide(each, _along_channels(each, rows, is_transposed), offset) for each in found]
    return _join(*divided, Absorbed(ties=(ties,)))


def _along_channels(parameter: ir.Value, rows: np.ndarray, is_transposed: bool) -> np.ndarray:
    """The channels [N] in the shape of a vector [N], or of a matrix [N, K] or, transposed, [K, N]."""
    if len(parameter.shape or ()) < 2:
        return rows
    return rows[None, :] if is_transposed else rows[:, None]


def _product(node: ir.Node, _: ir.Value, channels: np.ndarray) -> Absorbed | None:
    found = (_absorb(operand, channels) for operand in node.inputs)
    return next((absorbed for absorbed in found if absorbed is not None), None)


def _sum(node: ir.Node, _: ir.Value, channels: np.ndarray) -> Absorbed | None:
    return _join(*(_absorb(operand, channels) for operand in node.inputs))


def _homogeneous(node: ir.Node, _: ir.Value, channels: np.ndarray) -> Absorbed | None:
    return _absorb(node.inputs[0], channels)


def _attention(node: ir.Node, _: ir.Value, channels: np.ndarray) -> Absorbed | None:
    """[1, T, H, D] of values [1, Hk, T, D]: linear in the values; heads h * Hk / H share one."""
    values = node.inputs[traits_of(node).linear_input or 0]
    shape = None if values is None else channels_shape(values)
    if shape is None or len(shape) != 4 or channels.ndim != 4 or shape[3] != channels.shape[3]:
        return None
    heads = channels.reshape(shape[1], -1, shape[3])
    narrowed = _narrow(heads, (shape[1], 1, shape[3]))
    if narrowed is None:
        return None
    shared, ties = narrowed
    return _join(_absorb(values, shared.reshape(shape)), Absorbed(ties=(ties,)))


def _reshape(node: ir.Node, value: ir.Value, channels: np.ndarray) -> Absorbed | None:
    source = node.inputs[0]
    if source is None or _token_place(source) is None or _token_place(source) != _token_place(value):
        return None
    return _absorb(source, channels.reshape(channels_shape(source) or ()))


def _token_place(value: ir.Value) -> tuple[str, int] | None:
    """The one symbolic dimension and how many elements lie before it; None if there are several or none."""
    symbols = [(axis, size) for axis, size in enumerate(g.dims(value) or ()) if isinstance(size, str)]
    if len(symbols) != 1:
        return None
    (axis, name), shape = symbols[0], channels_shape(value) or ()
    return name, int(np.prod(shape[:axis], dtype=np.int64))


def _transpose(node: ir.Node, _: ir.Value, channels: np.ndarray) -> Absorbed | None:
    perm = node.attributes.get_ints("perm", None) or range(channels.ndim)[::-1]
    return _absorb(node.inputs[0], channels.transpose(np.argsort(perm)))


def _split(node: ir.Node, value: ir.Value, channels: np.ndarray) -> Absorbed | None:
    axis = node.attributes.get_int("axis", 0) % channels.ndim
    sizes = [(channels_shape(output) or ())[axis] for output in node.outputs]
    index = value.index() or 0
    first = sum(sizes[:index])
    window = [slice(None)] * channels.ndim
    window[axis] = slice(first, first + sizes[index])
    return _absorb_part(node.inputs[0], window, channels)


def _slice(node: ir.Node, _: ir.Value, channels: np.ndarray) -> Absorbed | None:
    bounds = [g.constant(operand) for operand in node.inputs[1:]]
    if any(bound is None for bound in bounds):
        return None
    return _absorb_part(node.inputs[0], numpy_ops.slices(channels.ndim, *bounds), channels)  # type: ignore[arg-type]


def _absorb_part(source: ir.Value | None, window: list[slice], channels: np.ndarray) -> Absorbed | None:
    """The part of `source` inside `window` is scaled, the rest is not."""
    shape = None if source is None else channels_shape(source)
    if shape is None:
        return None
    whole = np.full(shape, UNSCALED)
    if whole[tuple(window)].shape != channels.shape:
        return None
    whole[tuple(window)] = channels
    return _absorb(source, whole)


def _rows(node: ir.Node, value: ir.Value, channels: np.ndarray) -> Absorbed | None:
    """A Gather of tokens."""
    source, index = node.inputs
    shape = None if source is None else g.dims(source)
    axis = node.attributes.get_int("axis", 0)
    if shape is None or index is None or len(index.shape or ()) != 1 or isinstance(shape[axis], int):
        return None
    return _absorb(source, channels)


Rule = Callable[[ir.Node, ir.Value, np.ndarray], Absorbed | None]
_RULES: dict[str, Rule] = {
    "Mul": _product,
    "Add": _sum,
    "Sub": _sum,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Split": _split,
    "Slice": _slice,
    "Gather": _rows,
}
