"""Standard ONNX operations in NumPy: enough to evaluate derived parameters and probe what pieces compute.

Each entry takes the node, for its attributes, and its input arrays (None for an absent one), and returns one array or
a list of them. Definitions: https://onnx.ai/onnx/operators/
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

Arrays = np.ndarray | list[np.ndarray]
Operation = Callable[..., Arrays]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def erf(x: np.ndarray) -> np.ndarray:
    return _erf(x).astype(x.dtype) if x.size else x


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + erf(x / math.sqrt(2.0)))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _gelu(node: ir.Node, x: np.ndarray) -> np.ndarray:
    return gelu_tanh(x) if node.attributes.get_string("approximate", "none") == "tanh" else gelu(x)


def _div(_: ir.Node, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if np.issubdtype(a.dtype, np.integer):
        return (np.sign(a) * np.sign(b) * (abs(a) // abs(b))).astype(a.dtype)  # ONNX rounds towards zero
    return a / b


def _clip(_: ir.Node, x: np.ndarray, low: np.ndarray | None = None, high: np.ndarray | None = None) -> np.ndarray:
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _cast(node: ir.Node, x: np.ndarray) -> np.ndarray:
    return x.astype(ir.DataType(node.attributes.get_int("to", ir.DataType.FLOAT)).numpy())


def _reshape(node: ir.Node, x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    sizes = [int(size) for size in shape]
    if not node.attributes.get_int("allowzero", 0):
        sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    return x.reshape(sizes)


def _transpose(node: ir.Node, x: np.ndarray) -> np.ndarray:
    return x.transpose(node.attributes.get_ints("perm", None))


def slices(x_rank: int, starts: np.ndarray, ends: np.ndarray, axes=None, steps=None) -> list[slice]:
    """The Python slices of an ONNX Slice; an end beyond the start of a backward slice becomes None."""
    result = [slice(None)] * x_rank
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        backward_to_front = step < 0 and end < -(2**31)
        result[int(axis)] = slice(int(start), None if backward_to_front else int(end), int(step))
    return result


def _slice(_: ir.Node, x: np.ndarray, starts: np.ndarray, ends: np.ndarray, axes=None, steps=None) -> np.ndarray:
    return x[tuple(slices(x.ndim, starts, ends, axes, steps))]


def split_sizes(node: ir.Node, length: int, sizes: Sequence[int] | np.ndarray | None) -> list[int]:
    """How long each output of a Split of `length` elements is."""
    if sizes is not None:
        return [int(size) for size in sizes]
    chunk = -(-length // len(node.outputs))
    return [min(chunk, length - i * chunk) for i in range(len(node.outputs))]


def _split(node: ir.Node, x: np.ndarray, sizes: np.ndarray | None = None) -> list[np.ndarray]:
    axis = node.attributes.get_int("axis", 0)
    ends = np.cumsum(split_sizes(node, x.shape[axis], sizes))
    return np.split(x, ends[:-1], axis=axis)


def _reduce(function: Callable[..., np.ndarray]) -> Operation:
    def operation(node: ir.Node, x: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
        keep = bool(node.attributes.get_int("keepdims", 1))
        if axes is None or axes.size == 0:
            return x if node.attributes.get_int("noop_with_empty_axes", 0) else function(x, keepdims=keep)
        return function(x, axis=tuple(int(axis) for axis in axes), keepdims=keep).astype(x.dtype)

    return operation


def _elementwise(function: Callable[..., np.ndarray]) -> Operation:
    return lambda node, *inputs: function(*inputs)


# One output of the broadcast shape; element i depends on elements i of the inputs alone.
ELEMENTWISE: dict[str, Operation] = {
    "Abs": _elementwise(np.abs),
    "Add": _elementwise(np.add),
    "Cast": _cast,
    "Clip": _clip,
    "Cos": _elementwise(np.cos),
    "Div": _div,
    "Erf": _elementwise(erf),
    "Exp": _elementwise(np.exp),
    "Floor": _elementwise(np.floor),
    "Gelu": _gelu,
    "Log": _elementwise(np.log),
    "Max": _elementwise(lambda *xs: np.maximum.reduce(np.broadcast_arrays(*xs))),
    "Min": _elementwise(lambda *xs: np.minimum.reduce(np.broadcast_arrays(*xs))),
    "Mul": _elementwise(np.multiply),
    "Neg": _elementwise(np.negative),
    "Pow": lambda _, x, y: np.power(x, y.astype(x.dtype)),
    "Reciprocal": _elementwise(np.reciprocal),
    "Relu": _elementwise(lambda x: np.maximum(x, 0)),
    "Sigmoid": _elementwise(sigmoid),
    "Sin": _elementwise(np.sin),
    "Softplus": _elementwise(lambda x: np.logaddexp(x, 0)),
    "Sqrt": _elementwise(np.sqrt),
    "Sub": _elementwise(np.subtract),
    "Tanh": _elementwise(np.tanh),
    "Where": _elementwise(np.where),
    "Equal": _elementwise(np.equal),
    "Greater": _elementwise(np.greater),
    "GreaterOrEqual": _elementwise(np.greater_equal),
    "Less": _elementwise(np.less),
    "LessOrEqual": _elementwise(np.less_equal),
    "And": _elementwise(np.logical_and),
    "Or": _elementwise(np.logical_or),
    "Not": _elementwise(np.logical_not),
}

OPERATIONS: dict[str, Operation] = ELEMENTWISE | {
    "Concat": lambda node, *xs: np.concatenate(xs, axis=node.attributes.get_int("axis", 0)),
    "Expand": lambda _, x, shape: x * np.ones([int(size) for size in shape], x.dtype),
    "Gather": lambda node, x, index: np.take(x, index, axis=node.attributes.get_int("axis", 0)),
    "MatMul": _elementwise(np.matmul),
    "ReduceMax": _reduce(np.max),
    "ReduceMean": _reduce(np.mean),
    "ReduceMin": _reduce(np.min),
    "ReduceSum": _reduce(np.sum),
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Tile": lambda _, x, repeats: np.tile(x, [int(count) for count in repeats]),
    "Transpose": _transpose,
}


def apply(node: ir.Node, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    """The outputs of `node`. Raises KeyError for an operation that is not here."""
    outputs = OPERATIONS[node.op_type](node, *inputs)
    return outputs if isinstance(outputs, list) else [np.asarray(outputs)]
