"""PyTorch's matrix products, reductions and norms, and our own operations, in ONNX."""

import json
import math
from typing import Any

import torch

from .convert import DOMAIN, Converter, FxNode, Value, handles


@handles("linear", "enginesmith.linear")
def _linear(c: Converter, node: FxNode) -> Value:
    x, weight, *rest = node.args
    return _emit_linear(c, x, c.value(weight), rest[0] if rest else None, transposed=0)


def _emit_linear(c: Converter, x: Any, weight: Value, bias: Any, transposed: int) -> Value:
    producer: Any = weight.producer()
    if producer is not None and producer.op_type == "Transpose" and len(weight.shape or ()) == 2:
        weight, transposed = producer.inputs[0], 1 - transposed
    return c.emit("Linear", [x, weight, bias], domain=DOMAIN, activation="", transposed=transposed)


@handles("addmm")
def _addmm(c: Converter, node: FxNode) -> Value:
    bias, x, weight = node.args
    plain = all(value == 1 for value in node.kwargs.values())
    matrix = c.value(weight)
    if plain and c.is_derived(matrix) and bias.meta["val"].ndim == 1:
        return _emit_linear(c, x, matrix, bias, transposed=1)
    return c.refuse("addmm of activations")


@handles("mm", "matmul", "bmm")
def _matmul(c: Converter, node: FxNode) -> Value:
    x, y = node.args
    c.axis(x, -1)
    matrix = c.value(y)
    if c.is_derived(matrix) and y.meta["val"].ndim == 2 and not c.is_derived(c.value(x)):
        return _emit_linear(c, x, matrix, None, transposed=1)
    return c.emit("MatMul", [x, matrix])


@handles("baddbmm")
def _baddbmm(c: Converter, node: FxNode) -> Value:
    bias, x, y = node.args
    c.axis(x, -1)
    if any(value != 1 for value in node.kwargs.values()):
        return c.refuse("baddbmm with factors")
    return c.emit("Add", [c.emit("MatMul", [x, y]), bias])


@handles("layer_norm")
def _layer_norm(c: Converter, node: FxNode) -> Value:
    named = dict(zip(("input", "normalized_shape", "weight", "bias", "eps"), node.args, strict=False)) | dict(
        node.kwargs
    )
    shape: Any = named["normalized_shape"]
    weight = named.get("weight")
    scale = c.constant(torch.ones(*shape)) if weight is None else weight
    epsilon = float(named.get("eps", 1e-5))
    return c.emit("LayerNormalization", [named["input"], scale, named.get("bias")], axis=-len(shape), epsilon=epsilon)


@handles("rms_norm")
def _rms_norm(c: Converter, node: FxNode) -> Value:
    named = dict(zip(("input", "normalized_shape", "weight", "eps"), node.args, strict=False)) | dict(node.kwargs)
    if len(named["normalized_shape"]) != 1:
        return c.refuse("an RMS norm over several axes")
    epsilon = named.get("eps")
    epsilon = torch.finfo(torch.float32).eps if epsilon is None else epsilon
    inputs = [named["input"], named.get("weight")]
    return c.emit("RMSNorm", inputs, domain=DOMAIN, epsilon=float(epsilon), offset=0.0)


_REDUCTIONS = {
    "mean.dim": "ReduceMean",
    "sum.dim_IntList": "ReduceSum",
    "amax": "ReduceMax",
    "amin": "ReduceMin",
    "logsumexp": "ReduceLogSumExp",
}


@handles(*_REDUCTIONS)
def _reduce(c: Converter, node: FxNode) -> Value:
    x, *rest = node.args
    dims: Any = rest[0] if rest else node.kwargs.get("dim")
    keep = rest[1] if len(rest) > 1 else node.kwargs.get("keepdim", False)
    dims = range(x.meta["val"].ndim) if not dims and dims != 0 else [dims] if isinstance(dims, int) else dims
    axes = [c.axis(x, dim) for dim in dims]
    operator = _REDUCTIONS[f"{node.target._opname}.{node.target._overloadname}".removesuffix(".default")]
    return c.emit(operator, [c.value(x, node.meta["val"].dtype), c.constant(axes)], keepdims=int(bool(keep)))


@handles("std.dim", "std.correction", "var.dim", "var.correction")
def _deviation(c: Converter, node: FxNode) -> Value:
    """The root of the mean square of what is left of each element without the mean, or the square of that."""
    x, like, result = node.args[0], node.args[0].meta["val"], node.meta["val"]
    named = dict(zip(("self", "dim", "unbiased", "keepdim"), node.args, strict=False)) | dict(node.kwargs)
    dims: Any = named.get("dim")
    dims = range(like.ndim) if dims is None else [dims] if isinstance(dims, int) else dims
    places = [c.axis(x, dim) for dim in dims]
    axes, count = c.constant(places), math.prod(like.shape[place] for place in places)
    correction = named["correction"] if "correction" in named else int(named.get("unbiased", True))
    mean = c.emit("ReduceMean", [x, axes], like.mean(places, keepdim=True), keepdims=1)
    rest = c.emit("Sub", [x, mean], like)
    square = c.emit("Mul", [rest, rest], like)
    total = c.emit("ReduceSum", [square, axes], result, keepdims=int(named.get("keepdim", False)))
    variance = c.emit("Mul", [total, 1.0 / (count - (1 if correction is None else correction))], result)
    return c.emit("Sqrt", [variance], result) if node.target._opname == "std" else variance


@handles("softmax.int", "_softmax", "log_softmax.int", "_log_softmax")
def _softmax(c: Converter, node: FxNode) -> Value:
    dim = c.axis(node.args[0], node.args[1])
    operator = "LogSoftmax" if "log" in node.target._opname else "Softmax"
    return c.emit(operator, [c.value(node.args[0], node.meta["val"].dtype)], axis=dim)


@handles("topk")
def _topk(c: Converter, node: FxNode) -> tuple[Value, ...]:
    named = dict(zip(("self", "k", "dim", "largest", "sorted"), node.args, strict=False)) | dict(node.kwargs)
    dim = c.axis(named["self"], named.get("dim", -1))
    k = c.constant([named["k"]])
    largest = int(bool(named.get("largest", True)))
    return c.emit("TopK", [named["self"], k], *node.meta["val"], axis=dim, largest=largest, sorted=1)


@handles("max.dim")
def _max(c: Converter, node: FxNode) -> tuple[Value, ...]:
    """Largest values and where they are."""
    x, dim, *keep = node.args
    values, indices = node.meta["val"]
    kept = [each if keep and keep[0] else each.unsqueeze(dim) for each in (values, indices)]
    found = c.emit("TopK", [x, c.constant([1])], *kept, axis=c.axis(x, dim), largest=1, sorted=1)
    return tuple(c.reshape(value, like) for value, like in zip(found, (values, indices), strict=True))


@handles("cumsum")
def _cumsum(c: Converter, node: FxNode) -> Value:
    dim = c.axis(node.args[0], node.args[1])
    return c.emit("CumSum", [c.value(node.args[0], node.meta["val"].dtype), c.constant(torch.tensor(dim))])


@handles("argmax")
def _argmax(c: Converter, node: FxNode) -> Value:
    named = dict(zip(("self", "dim", "keepdim"), node.args, strict=False)) | dict(node.kwargs)
    if named.get("dim") is None:
        return c.refuse("argmax over everything")
    dim = c.axis(node.args[0], named["dim"])
    return c.emit("ArgMax", [node.args[0]], axis=dim, keepdims=int(bool(named.get("keepdim", False))))


@handles("enginesmith.paged_attention")
def _paged_attention(c: Converter, node: FxNode) -> Value:
    q, k, v, sinks, slopes, scale, window, softcap, causal, chunk = node.args
    attributes = {
        "cache_layer": c.count("cache_layer"), "scale": scale, "window": window, "softcap": softcap, "causal": causal,
        "chunk": chunk,
    }  # fmt: skip
    biased = torch.tensor(slopes, dtype=torch.float32) if slopes else None
    return c.emit("PagedAttention", [q, k, v, sinks, biased], domain=DOMAIN, **attributes)


@handles("enginesmith.recurrence")
def _recurrence(c: Converter, node: FxNode) -> Value:
    operation, inputs, _, attributes = node.args
    return c.emit(operation, inputs, domain=DOMAIN, **json.loads(attributes))


@handles("enginesmith.experts")
def _experts(c: Converter, node: FxNode) -> Value:
    *inputs, activation, limit, up_offset = node.args
    attributes = {"activation": activation, "limit": limit, "up_offset": up_offset}
    return c.emit("Experts", inputs, domain=DOMAIN, **attributes)


@handles("enginesmith.rms_norm")
def _own_rms_norm(c: Converter, node: FxNode) -> Value:
    x, weight, epsilon, offset = node.args
    return c.emit("RMSNorm", [x, weight], domain=DOMAIN, epsilon=epsilon, offset=offset)


@handles("enginesmith.rotary_embedding")
def _rotary_embedding(c: Converter, node: FxNode) -> Value:
    x, cos, sin, style, rotary_dim, cos_stride, heads_axis, _ = node.args
    attributes = {"style": style, "rotary_dim": rotary_dim, "cos_stride": cos_stride, "heads_axis": heads_axis}
    return c.emit("RotaryEmbedding", [x, cos, sin], domain=DOMAIN, **attributes)
