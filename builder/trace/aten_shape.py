"""PyTorch's operators that move, cut and join elements, in ONNX."""

import operator
from typing import Any

import torch
from torch.fx import Node

from .convert import HANDLERS, Converter, FxNode, Value, handles

_FAR = torch.iinfo(torch.int64).max


@handles(
    "view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "squeeze.dim", "squeeze.dims", "flatten.using_ints",
    "unflatten.int", "view_as", "reshape_as",
)  # fmt: skip
def _reshape(c: Converter, node: FxNode) -> Value:
    return c.reshape(node.args[0])


def _getitem(c: Converter, node: FxNode) -> Value:
    return c.values(node.args[0])[node.args[1]]


HANDLERS[operator.getitem] = _getitem


def _transpose(c: Converter, node: FxNode, order: list[int]) -> Value:
    return c.emit("Transpose", [node.args[0]], perm=order)


@handles("transpose.int", "swapaxes", "swapdims", "t", "mT")
def _swap(c: Converter, node: FxNode) -> Value:
    order = list(range(node.meta["val"].ndim))
    a, b = node.args[1:3] if len(node.args) > 1 else (-2, -1)
    order[a], order[b] = order[b], order[a]
    return _transpose(c, node, order)


@handles("permute")
def _permute(c: Converter, node: FxNode) -> Value:
    rank = node.meta["val"].ndim
    return _transpose(c, node, [dim % rank for dim in node.args[1]])


@handles("expand", "expand_as")
def _expand(c: Converter, node: FxNode) -> Value:
    shape, target = node.args[0].meta["val"].shape, node.meta["val"].shape
    if c.dims(shape) == c.dims(target):
        return c.value(node.args[0])
    return c.emit("Expand", [node.args[0], c.constant(_expanded_sizes(c, shape, target))])


def _expanded_sizes(c: Converter, shape: Any, target: Any) -> list[int]:
    padded = [1] * (len(target) - len(shape)) + list(shape)
    return [
        1 if old == new else new if isinstance(new, int) else -1
        for old, new in zip(c.dims(padded), c.dims(target), strict=True)
    ]


@handles("repeat")
def _repeat(c: Converter, node: FxNode) -> Value:
    counts: Any = node.args[1]
    if not all(isinstance(count, int) for count in counts):
        return c.refuse("a repetition of a token dimension")
    x = node.args[0].meta["val"]
    padded = x.reshape(*(1,) * (len(counts) - x.ndim), *x.shape)
    return c.emit("Tile", [c.reshape(node.args[0], padded), c.constant(list(counts))])


@handles("repeat_interleave.self_int")
def _repeat_interleave(c: Converter, node: FxNode) -> Value:
    x = node.args[0].meta["val"]
    count, dim = node.args[1], node.args[2] if len(node.args) > 2 else node.kwargs.get("dim")
    if dim is None or not isinstance(count, int):
        return c.refuse("repeat_interleave without a dimension")
    dim = dim % x.ndim
    apart = c.reshape(node.args[0], x.unsqueeze(dim + 1))
    sizes = [1] * (x.ndim + 1)
    sizes[dim + 1] = count
    wide = x.unsqueeze(dim + 1).expand(*x.shape[: dim + 1], count, *x.shape[dim + 1 :])
    return c.reshape(c.emit("Expand", [apart, c.constant(sizes)], wide))


@handles("slice.Tensor", "narrow")
def _slice(c: Converter, node: FxNode) -> Value:
    x = node.args[0].meta["val"]
    dim, start, end, step = _slice_arguments(node)
    dim = dim % x.ndim
    if step == 1 and c.dims(x.shape) == c.dims(node.meta["val"].shape):
        return c.value(node.args[0])
    if not isinstance(x.shape[dim], int) or any(isinstance(bound, Node) for bound in (start, end)):
        return c.refuse("a slice of tokens")
    return slice_axis(c, node.args[0], dim, start or 0, _FAR if end is None else end, step, node.meta["val"])


def _slice_arguments(node: FxNode) -> tuple[int, Any, Any, int]:
    if node.target is torch.ops.aten.narrow.default:
        _, dim, start, length = node.args
        return dim, start, start + length, 1
    named = dict(zip(("self", "dim", "start", "end", "step"), node.args, strict=False)) | dict(node.kwargs)
    return named.get("dim", 0), named.get("start"), named.get("end"), named.get("step", 1)


def slice_axis(c: Converter, x: Any, dim: int, start: int, end: int, step: int, like: torch.Tensor) -> Value:
    return c.emit("Slice", [x, *(c.constant([number]) for number in (start, end, dim, step))], like)


@handles("copy")
def _copy(c: Converter, node: FxNode) -> Value:
    """What writing into a slice becomes: the second operand in the shape and dtype of the first."""
    source = c.value(node.args[1], node.meta["val"].dtype)
    shape, target = node.args[1].meta["val"].shape, node.meta["val"].shape
    if c.dims(shape) == c.dims(target):
        return source
    return c.emit("Expand", [source, c.constant(_expanded_sizes(c, shape, target))])


@handles("slice_scatter")
def _slice_scatter(c: Converter, node: FxNode) -> Value:
    """x with elements of it along one axis replaced: pieces of it and of the source, joined in their order."""
    x, source = node.args[:2]
    named = dict(zip(("dim", "start", "end", "step"), node.args[2:], strict=False)) | dict(node.kwargs)
    dim = c.axis(x, named.get("dim", 0))
    size, step = x.meta["val"].shape[dim], named.get("step", 1)
    start, end, _ = slice(named.get("start"), named.get("end")).indices(size)
    if step == 1:
        pieces = [*_run(c, x, dim, 0, start), c.value(source, node.meta["val"].dtype), *_run(c, x, dim, end, size)]
    else:
        pieces, before = [], 0
        for number, place in enumerate(range(start, end, step)):
            pieces += [*_run(c, x, dim, before, place), *_run(c, source, dim, number, number + 1)]
            before = place + 1
        pieces += _run(c, x, dim, before, size)
    return pieces[0] if len(pieces) == 1 else c.emit("Concat", pieces, axis=dim)


def _run(c: Converter, x: Any, dim: int, start: int, end: int) -> list[Value]:
    """Elements [start, end) of x along `dim`: values that were joined to make it, where none has to be cut."""
    if start == end:
        return []
    whole = c.value(x)
    producer: Any = whole.producer()
    if producer is not None and producer.op_type == "Concat" and producer.attributes["axis"].as_int() == dim:
        parts, bounds = list(producer.inputs), [0]
        for part in parts:
            bounds.append(bounds[-1] + int(part.shape[dim]))
        if start in bounds and end in bounds:
            return parts[bounds.index(start) : bounds.index(end)]
    return [slice_axis(c, whole, dim, start, end, 1, x.meta["val"].narrow(dim, start, end - start))]


@handles("select.int")
def _select(c: Converter, node: FxNode) -> Value:
    x = node.args[0].meta["val"]
    dim, index = node.args[1] % x.ndim, node.args[2]
    if x.shape[dim] == 1:
        return c.reshape(node.args[0])
    if not isinstance(x.shape[dim], int) or not isinstance(index, int):
        return c.refuse("the choice of one token")
    index = index % x.shape[dim]
    return c.reshape(slice_axis(c, node.args[0], dim, index, index + 1, 1, node.meta["val"].unsqueeze(dim)))


@handles("split.Tensor", "split_with_sizes", "chunk", "tensor_split.sections")
def _split(c: Converter, node: FxNode) -> tuple[Value, ...]:
    parts = node.meta["val"]
    dim = c.axis(node.args[0], _dim_argument(node, 2, 0))
    if len(parts) == 1:
        return (c.value(node.args[0]),)
    return c.emit("Split", [node.args[0], c.constant([part.shape[dim] for part in parts])], *parts, axis=dim)


@handles("unbind.int")
def _unbind(c: Converter, node: FxNode) -> tuple[Value, ...]:
    dim = c.axis(node.args[0], _dim_argument(node, 1, 0))
    parts = node.meta["val"]
    apart = [part.unsqueeze(dim) for part in parts]
    ones = c.constant([1] * len(parts))
    pieces = c.emit("Split", [node.args[0], ones], *apart, axis=dim) if len(parts) > 1 else (c.value(node.args[0]),)
    return tuple(c.reshape(piece, part) for piece, part in zip(pieces, parts, strict=True))


def _dim_argument(node: FxNode, position: int, default: int) -> int:
    found = node.args[position] if len(node.args) > position else node.kwargs.get("dim", default)
    return found


@handles("cat", "concat", "concatenate")
def _cat(c: Converter, node: FxNode) -> Value:
    tensors: Any = node.args[0]
    dim = _dim_argument(node, 1, 0) % node.meta["val"].ndim
    for tensor in tensors:
        c.axis(tensor, dim)
    dtype = node.meta["val"].dtype
    parts = [c.value(t, dtype) for t in tensors if t.meta["val"].numel() != 0 or t.meta["val"].ndim > 1]
    return parts[0] if len(parts) == 1 else c.emit("Concat", parts, axis=dim)


@handles("stack")
def _stack(c: Converter, node: FxNode) -> Value:
    tensors: Any = node.args[0]
    dim = _dim_argument(node, 1, 0) % node.meta["val"].ndim
    dtype = node.meta["val"].dtype
    parts = [c.reshape(c.value(t, dtype), t.meta["val"].to(dtype).unsqueeze(dim)) for t in tensors]
    return c.emit("Concat", parts, axis=dim)


@handles("index.Tensor")
def _index(c: Converter, node: FxNode) -> Value:
    """One index tensor along one dimension; along tokens it may only be `logits_rows`' choice of rows."""
    x, indices = node.args
    used = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if len(used) != 1 or used[0][1].meta["val"].dtype == torch.bool:
        return c.refuse("indexing with several tensors or a mask")
    return _gather_rows(c, x, *used[0])


def _gather_rows(c: Converter, x: Any, dim: int, index: Any) -> Value:
    if not isinstance(x.meta["val"].shape[dim], int) and c.dims(index.meta["val"].shape) != ["R"]:
        return c.refuse("a choice of tokens")
    return c.emit("Gather", [x, index], axis=dim)


@handles("index_select")
def _index_select(c: Converter, node: FxNode) -> Value:
    return _gather_rows(c, *node.args)


@handles("embedding")
def _embedding(c: Converter, node: FxNode) -> Value:
    return c.emit("Gather", [node.args[0], node.args[1]], axis=0)


@handles("gather")
def _gather(c: Converter, node: FxNode) -> Value:
    dim = c.axis(node.args[0], node.args[1])
    return c.emit("GatherElements", [node.args[0], node.args[2]], axis=dim)


@handles("scatter.src", "scatter.value")
def _scatter(c: Converter, node: FxNode) -> Value:
    x, dim, index, source = node.args[:4]
    dim = c.axis(x, dim)
    if not isinstance(source, Node):
        like = index.meta["val"].to(x.meta["val"].dtype)
        ones = c.emit("Cast", [c.emit("Equal", [index, index], index.meta["val"] == 0)], like, to=c.value(x).dtype)
        source = c.emit("Mul", [ones, c.value(source, x.meta["val"].dtype)], like)
    return c.emit("ScatterElements", [x, index, source], axis=dim)


@handles("constant_pad_nd", "pad")
def _pad(c: Converter, node: FxNode) -> Value:
    x, pads = node.args[:2]
    rank = x.meta["val"].ndim
    before, after = [0] * rank, [0] * rank
    for i in range(len(pads) // 2):
        before[rank - 1 - i], after[rank - 1 - i] = pads[2 * i], pads[2 * i + 1]
        if pads[2 * i] or pads[2 * i + 1]:
            c.axis(x, rank - 1 - i)
    if len(node.args) > 2 and not isinstance(node.args[2], (int, float)):
        return c.refuse("padding that is not constant")
    fill = node.args[2] if len(node.args) > 2 else 0.0
    return c.emit("Pad", [x, c.constant(before + after), c.value(fill, node.meta["val"].dtype)])


@handles("arange", "arange.start", "arange.start_step")
def _arange(c: Converter, node: FxNode) -> Value:
    return c.refuse("a value computed from the number of tokens (positions must come from position_ids)")


_FILLS = {"full_like": None, "zeros_like": 0, "ones_like": 1, "new_zeros": 0, "new_ones": 1, "zeros": 0, "ones": 1}


@handles(*_FILLS, "new_full", "full", "scalar_tensor", "empty_like", "new_empty")
def _fill(c: Converter, node: FxNode) -> Value:
    """A number in a shape: one element, spread."""
    name = node.target._opname
    fill = _FILLS.get(name)
    if fill is None:
        position = {"new_full": 2, "scalar_tensor": 0}.get(name, 1)
        fill = 0 if name.endswith("empty") or name == "empty_like" else node.args[position]
    like = node.meta["val"]
    sizes = [size if isinstance(size, int) else -1 for size in c.dims(like.shape)]
    element = c.constant(torch.full([1] * like.ndim, fill, dtype=like.dtype))
    return element if all(size == 1 for size in sizes) else c.emit("Expand", [element, c.constant(sizes)])
