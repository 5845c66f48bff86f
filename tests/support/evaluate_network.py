"""A plain NumPy interpreter of networks: what every node means, attention and recurrences over packed sequences."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from enginesmith.plugins.discovery import operations
from enginesmith.runtime.manifest import LONG_ROPE

Array = np.ndarray
_erf = np.vectorize(math.erf, otypes=[np.float64])


def evaluate(network: Any, weights: Mapping[str, Array], sequences: Sequence[Sequence[int]]) -> Array:
    """Logits [sum of lengths, V] of the packed `sequences`, each from position 0, every row wanted."""
    lengths = [len(sequence) for sequence in sequences]
    after = math.inf if network.long_rope_after is None else network.long_rope_after
    values: dict[str, Array] = {
        "input_ids": np.concatenate([np.asarray(s, np.int64) for s in sequences]),
        "position_ids": np.concatenate([np.arange(n) + LONG_ROPE * (n > after) for n in lengths]),
        "logits_rows": np.arange(sum(lengths)),
    }
    return run(network, weights, values, lengths)


def run(network: Any, weights: Mapping[str, Array], inputs: Mapping[str, Array], lengths: Sequence[int]) -> Array:
    """The network's output for given inputs; `lengths` says where the packed sequences end."""
    values: dict[str, Array] = dict(inputs)
    for name, value in network.graph.initializers.items():
        values[name] = np.asarray(weights[name]) if value.const_value is None else value.const_value.numpy()
    for node in network.graph:
        arguments = [None if value is None else values[value.name] for value in node.inputs]
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        results = OPERATIONS.get(node.op_type, recurrence)(node, attributes, lengths, *arguments)
        for value, result in zip(node.outputs, results if isinstance(results, tuple) else (results,), strict=True):
            _check(node, value, result, values)
            values[value.name] = result
    return values[network.graph.outputs[0].name]


def _check(node: ir.Node, value: ir.Value, result: Array, values: Mapping[str, Array]) -> None:
    sizes = {"T": len(values["input_ids"]), "R": len(values["logits_rows"])}
    expected = tuple(d if isinstance(d, int) else eval(str(d.value), {}, sizes) for d in value.shape or ())
    assert value.shape is not None, f"{node} has no shape"
    assert result.shape == expected, f"{node}: shape {result.shape}"
    assert value.dtype is not None, f"{node} has no dtype"
    assert result.dtype == value.dtype.numpy(), f"{node}: dtype {result.dtype}"


def attention(
    _: Any,
    a: dict[str, Any],
    lengths: Sequence[int],
    q: Array,
    k: Array,
    v: Array,
    sinks: Any = None,
    slopes: Any = None,
) -> Array:
    """q [1,H,T,D], k and v [1,Hk,T,D] -> [1,T,H,Dv]; a query sees its own sequence alone."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scores = np.einsum("bhid,bhjd->bhij", q, k).astype(np.float64) * a["scale"]
    if a["softcap"]:
        scores = np.tanh(scores / a["softcap"]) * a["softcap"]
    owner = np.repeat(np.arange(len(lengths)), lengths)
    place = np.concatenate([np.arange(n) for n in lengths])
    i, j = place[:, None], place[None]
    if slopes is not None:
        scores = scores - slopes[None, :, None, None] * (i - j)
    keep = owner[:, None] == owner[None]
    keep &= (j <= i) if a["causal"] else True
    keep &= (i - a["window"] < j) if a["window"] else True
    keep &= (i // a["chunk"] == j // a["chunk"]) if a["chunk"] else True
    scores = np.where(keep, scores, -np.inf)
    if sinks is not None:
        scores = np.concatenate([scores, np.broadcast_to(sinks[None, :, None, None], (*scores.shape[:3], 1))], -1)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p = (p / p.sum(-1, keepdims=True))[..., : v.shape[2]]
    return np.einsum("bhij,bhjd->bihd", p, v).astype(q.dtype)


def recurrence(node: ir.Node, a: dict[str, Any], lengths: Sequence[int], *inputs: Any) -> Array:
    """A plugin's own reference, of each sequence by itself."""
    schema, ends = operations()[node.op_type], np.cumsum(lengths)[:-1]

    def parts(x: Any) -> Sequence[Any]:
        if x is None or x.ndim < 3 or x.shape[1] != sum(lengths):
            return [x] * len(lengths)
        return np.split(x, ends, 1)

    each = [schema.reference(*own, attributes=schema.parse(a)) for own in zip(*map(parts, inputs), strict=True)]
    return np.concatenate(each, 1).astype(np.float32)


def rms_norm(_: Any, a: dict[str, Any], __: Any, x: Array, weight: Any = None) -> Array:
    y = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + a["epsilon"])
    return (y if weight is None else y * (weight + a["offset"])).astype(x.dtype)


def layer_norm(_: Any, a: dict[str, Any], __: Any, x: Array, scale: Array, bias: Any = None) -> Array:
    wide = x.astype(np.float64)
    axes = tuple(range(a.get("axis", -1) % x.ndim, x.ndim))
    centred = wide - wide.mean(axes, keepdims=True)
    y = centred / np.sqrt((centred**2).mean(axes, keepdims=True) + a["epsilon"]) * scale
    return (y if bias is None else y + bias).astype(x.dtype)


def rotary(_: Any, a: dict[str, Any], __: Any, x: Array, cos: Array, sin: Array) -> Array:
    half, stride = a["rotary_dim"] // 2, a["cos_stride"]
    c, s = (np.expand_dims(t[..., : half * stride : stride], a["heads_axis"]) for t in (cos, sin))
    turned, rest = x[..., : 2 * half], x[..., 2 * half :]
    first, second = (
        (turned[..., :half], turned[..., half:]) if a["style"] == "neox" else (turned[..., ::2], turned[..., 1::2])
    )
    first, second = first * c - second * s, second * c + first * s
    if a["style"] == "gptj":
        y = np.stack((first, second), -1).reshape(turned.shape)
    else:
        y = np.concatenate((first, second), -1)
    return np.concatenate((y, rest), -1)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "": lambda x: x,
    "gelu": lambda x: x * 0.5 * (1 + _erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


def _activate(name: str, x: Array) -> Array:
    return ACTIVATIONS[name](x.astype(np.float64)).astype(x.dtype)


def linear(
    _: Any, a: dict[str, Any], __: Any, x: Array, weight: Array, bias: Any = None, residual: Any = None
) -> Array:
    y = x @ (weight if a.get("transposed") else weight.T)
    y = _activate(a.get("activation", ""), y if bias is None else y + bias)
    return y if residual is None else y + residual


def gated_mlp(
    _: Any, a: dict[str, Any], __: Any, x: Array, gate: Array, up: Array, gate_bias: Any = None, up_bias: Any = None
):
    g, u = x @ gate.T, x @ up.T
    g, u = g if gate_bias is None else g + gate_bias, u if up_bias is None else u + up_bias
    return _activate(a["activation"], g) * u


def _experts(node: ir.Node, a: dict[str, Any], _: Any, *inputs: Any) -> Any:
    schema = operations()[node.op_type]
    return schema.reference(*inputs, *[None] * (9 - len(inputs)), attributes=schema.parse(a))


def _skip_rms_norm(n: Any, a: Any, t: Any, x: Array, skip: Array, weight: Any = None) -> tuple[Array, Array]:
    return rms_norm(n, {"offset": 0.0, **a}, t, x + skip, weight), x + skip


def _skip_layer_norm(n: Any, a: Any, t: Any, x: Array, skip: Array, weight: Array, bias: Any = None):
    return layer_norm(n, a, t, x + skip, weight, bias), x + skip


def _reshape(_: Any, __: Any, ___: Any, x: Array, shape: Array) -> Array:
    return x.reshape(tuple(shape))


def _expand(_: Any, __: Any, lengths: Sequence[int], x: Array, shape: Array) -> Array:
    padded = (1,) * (len(shape) - x.ndim) + x.shape
    sizes = [sum(lengths) if new == -1 and old == 1 else max(old, new) for old, new in zip(padded, shape, strict=True)]
    return np.broadcast_to(x, sizes)


def _slice(_: Any, __: Any, ___: Any, x: Array, start: Array, end: Array, axes: Array, steps: Any = None) -> Array:
    index = [slice(None)] * x.ndim
    for i, axis in enumerate(axes):
        index[axis] = slice(start[i], end[i], 1 if steps is None else steps[i])
    return x[tuple(index)]


def _split(_: Any, a: dict[str, Any], __: Any, x: Array, sizes: Array) -> tuple[Array, ...]:
    return tuple(np.split(x, np.cumsum(sizes)[:-1], a["axis"]))


def _pad(_: Any, __: Any, ___: Any, x: Array, pads: Array, fill: Array) -> Array:
    return np.pad(x, list(zip(pads[: x.ndim], pads[x.ndim :], strict=True)), constant_values=fill)


def _top_k(_: Any, a: dict[str, Any], __: Any, x: Array, k: Array) -> tuple[Array, Array]:
    order = np.argsort(-x if a["largest"] else x, a["axis"], kind="stable")
    index = np.take(order, np.arange(k[0]), a["axis"])
    return np.take_along_axis(x, index, a["axis"]), index


def _scatter(_: Any, a: dict[str, Any], __: Any, x: Array, index: Array, source: Array) -> Array:
    y = x.copy()
    np.put_along_axis(y, index, source, a["axis"])
    return y


def _softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _plain(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda _, __, ___, *arguments: function(*arguments)


def _reduce(function: Callable[..., Array]) -> Callable[..., Array]:
    def reduce(_: Any, a: dict[str, Any], __: Any, x: Array, axes: Array) -> Array:
        return np.asarray(function(x, axis=tuple(axes), keepdims=bool(a["keepdims"])), x.dtype)

    return reduce


OPERATIONS: dict[str, Callable[..., Any]] = {
    "PagedAttention": attention,
    "RMSNorm": rms_norm,
    "SkipRMSNorm": _skip_rms_norm,
    "LayerNormalization": layer_norm,
    "SkipLayerNorm": _skip_layer_norm,
    "RotaryEmbedding": rotary,
    "Linear": linear,
    "GatedMLP": gated_mlp,
    "Experts": _experts,
    "Reshape": _reshape,
    "Expand": _expand,
    "Slice": _slice,
    "Split": _split,
    "Pad": _pad,
    "TopK": _top_k,
    "ScatterElements": _scatter,
    "Concat": lambda _, a, __, *parts: np.concatenate(parts, a["axis"]),
    "Transpose": lambda _, a, __, x: x.transpose(a["perm"]),
    "Gather": lambda _, a, __, x, index: np.take(x, index, a.get("axis", 0)),
    "GatherElements": lambda _, a, __, x, index: np.take_along_axis(x, index, a["axis"]),
    "Cast": lambda _, a, __, x: x.astype(ir.DataType(a["to"]).numpy()),
    "Gelu": lambda _, a, __, x: _activate("gelu_tanh" if a.get("approximate") == "tanh" else "gelu", x),
    "Softmax": lambda _, a, __, x: _softmax(x, a["axis"]),
    "LogSoftmax": lambda _, a, __, x: np.log(_softmax(x, a["axis"])),
    "ArgMax": lambda _, a, __, x: x.argmax(a["axis"], keepdims=bool(a["keepdims"])),
    "CumSum": _plain(lambda x, axis: np.cumsum(x, int(axis), dtype=x.dtype)),
    "Tile": _plain(np.tile),
    "Where": _plain(np.where),
    "Clip": _plain(lambda x, low=None, high=None: np.clip(x, low, high)),
    "Relu": _plain(ACTIVATIONS["relu"]),
    "Sigmoid": _plain(lambda x: _activate("sigmoid", x)),
    "LeakyRelu": lambda _, a, __, x: np.where(x > 0, x, x * np.float32(a["alpha"])),
    "Elu": lambda _, a, __, x: np.where(x > 0, x, (a["alpha"] * np.expm1(x)).astype(x.dtype)),
    "Softplus": _plain(lambda x: np.logaddexp(0, x).astype(x.dtype)),
    "Erf": _plain(lambda x: _erf(x).astype(x.dtype)),
    "ReduceMean": _reduce(np.mean),
    "ReduceSum": _reduce(np.sum),
    "ReduceMax": _reduce(np.max),
    "ReduceMin": _reduce(np.min),
    "ReduceLogSumExp": _reduce(lambda x, **k: np.log(np.sum(np.exp(x.astype(np.float64)), **k))),
}
_NUMPY = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "Div": "divide", "Pow": "power", "Max": "maximum",
    "Min": "minimum", "MatMul": "matmul", "Neg": "negative", "Abs": "abs", "Exp": "exp", "Log": "log", "Sqrt": "sqrt",
    "Reciprocal": "reciprocal", "Cos": "cos", "Sin": "sin", "Tanh": "tanh", "Floor": "floor", "Ceil": "ceil",
    "Round": "round", "Sign": "sign", "Equal": "equal", "Less": "less", "LessOrEqual": "less_equal",
    "Greater": "greater", "GreaterOrEqual": "greater_equal", "And": "logical_and", "Or": "logical_or",
    "Xor": "logical_xor",
    "Not": "logical_not", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseNot": "invert",
}  # fmt: skip
OPERATIONS.update({name: _plain(getattr(np, function)) for name, function in _NUMPY.items()})
