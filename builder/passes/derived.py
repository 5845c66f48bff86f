"""Derived parameters: values computed from the checkpoint's weights alone, evaluated when an engine is packed.

A value is derived if it is a parameter, a constant, or computed from such by operations of `numpy_ops`. Passes express
merged, sliced and shifted weights as ordinary ONNX nodes; nothing is computed until a packer asks for rows, and only
the part of each parameter that those rows need is read:

    rows(value, 0, 64, checkpoint.read)     # float32 [64, ...]

`read(name)` gives an array of any element type, best a memory-mapped view, or anything that is sliced like one: it is
sliced first and converted afterwards.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import onnx_ir as ir

from . import numpy_ops
from .graph import constant, is_parameter, static_dims


class Sliceable(Protocol):
    """What gives an array for a slice of every axis."""

    def __getitem__(self, box: tuple[slice, ...], /) -> np.ndarray: ...


Read = Callable[[str], Sliceable]
Box = tuple[tuple[int, int], ...]  # a half-open range for every axis


def is_derived(value: ir.Value | None) -> bool:
    """Whether `value` depends on parameters and constants alone, through operations that can be evaluated."""
    if value is None:
        return False
    if value.is_initializer():
        return True
    node = value.producer()
    return (
        node is not None
        and node.domain == ""
        and node.op_type in numpy_ops.OPERATIONS
        and static_dims(value) is not None
        and all(operand is None or is_derived(operand) for operand in node.inputs)
    )


def parameters_of(value: ir.Value) -> list[str]:
    """Names of the parameters a derived value is computed from, each once, in order."""
    return list(dict.fromkeys(_leaves(value)))


def depends_on_parameter(value: ir.Value) -> bool:
    """Whether any parameter goes into the value; a constant alone does not count."""
    return next(_leaves(value), None) is not None


def _leaves(value: ir.Value) -> Iterator[str]:
    if is_parameter(value):
        assert value.name is not None
        yield value.name
    node = value.producer()
    for operand in node.inputs if node is not None else ():
        if operand is not None:
            yield from _leaves(operand)


def compute(value: ir.Value, read: Read) -> np.ndarray:
    """All of a derived value, float32, C-contiguous."""
    return np.ascontiguousarray(_region(value, _whole(value), read), dtype=np.float32)


def rows(value: ir.Value, first: int, last: int, read: Read, *, transposed: bool = False) -> np.ndarray:
    """Rows [first, last) of a derived value, float32, C-contiguous; other rows are not read where that can be avoided.

    `transposed` reads columns of a [K, N] value instead and returns them as rows [last - first, K].
    """
    box = _whole(value)
    if transposed:
        return np.ascontiguousarray(_region(value, (box[0], (first, last)), read).T, dtype=np.float32)
    return np.ascontiguousarray(_region(value, ((first, last), *box[1:]), read), dtype=np.float32)


def rows_of(value: ir.Value, index: int, first: int, last: int, read: Read) -> np.ndarray:
    """Rows [first, last) of the matrix at `index` of a derived value [E, N, K], as `rows` gives them."""
    box = ((index, index + 1), (first, last), _whole(value)[2])
    return np.ascontiguousarray(_region(value, box, read)[0], dtype=np.float32)


def _whole(value: ir.Value) -> Box:
    shape = static_dims(value)
    if shape is None:
        raise ValueError(f"derived parameter {value.name!r} has no static shape: {value.shape}")
    return tuple((0, size) for size in shape)


def _crop(array: Sliceable, box: Box) -> np.ndarray:
    return array[tuple(slice(first, last) for first, last in box)]


def _region(value: ir.Value, box: Box, read: Read) -> np.ndarray:
    """The part of a value inside `box`; parameters come as float32, constants in their own type."""
    if is_parameter(value):
        assert value.name is not None
        return np.asarray(_crop(read(value.name), box), dtype=np.float32)
    data = constant(value)
    if data is not None:
        return _crop(data, box)
    node = value.producer()
    assert node is not None
    if node.op_type in numpy_ops.ELEMENTWISE:
        return _elementwise_region(node, box, read)
    special = _REGIONS.get(node.op_type)
    if special is not None:
        return special(node, value, box, read)
    return _crop(numpy_ops.apply(node, _inputs(node, read))[value.index() or 0], box)


def _inputs(node: ir.Node, read: Read, first: int = 0) -> list[np.ndarray | None]:
    return [None if operand is None else _region(operand, _whole(operand), read) for operand in node.inputs[first:]]


def _elementwise_region(node: ir.Node, box: Box, read: Read) -> np.ndarray:
    def narrow(operand: ir.Value) -> np.ndarray:
        whole = _whole(operand)
        aligned = box[len(box) - len(whole) :]
        narrowed = tuple(full if full[1] == 1 else wanted for full, wanted in zip(whole, aligned, strict=True))
        return _region(operand, narrowed, read)

    return numpy_ops.apply(node, [None if operand is None else narrow(operand) for operand in node.inputs])[0]


def _source(node: ir.Node) -> ir.Value:
    source = node.inputs[0]
    assert source is not None
    return source


def _transpose_region(node: ir.Node, value: ir.Value, box: Box, read: Read) -> np.ndarray:
    perm = node.attributes.get_ints("perm", None) or list(reversed(range(len(box))))
    turned = [box[list(perm).index(axis)] for axis in range(len(box))]
    return _region(_source(node), tuple(turned), read).transpose(perm)


def _concat_region(node: ir.Node, value: ir.Value, box: Box, read: Read) -> np.ndarray:
    axis = node.attributes.get_int("axis", 0) % len(box)
    parts, offset = [], 0
    for operand in node.inputs:
        assert operand is not None
        length = _whole(operand)[axis][1]
        first, last = max(box[axis][0] - offset, 0), min(box[axis][1] - offset, length)
        if first < last:
            parts.append(_region(operand, (*box[:axis], (first, last), *box[axis + 1 :]), read))
        offset += length
    return np.concatenate(parts, axis=axis) if len(parts) != 1 else parts[0]


def _slice_region(node: ir.Node, value: ir.Value, box: Box, read: Read) -> np.ndarray:
    whole = _whole(_source(node))
    windows = numpy_ops.slices(len(box), *_inputs(node, read, first=1))  # type: ignore[arg-type]
    ranges = [range(size)[window] for (_, size), window in zip(whole, windows, strict=True)]
    if any(r.step < 1 for r in ranges):
        return _crop(numpy_ops.apply(node, _inputs(node, read))[0], box)
    wanted = [r[first:last] for r, (first, last) in zip(ranges, box, strict=True)]
    covering = tuple((r.start, r[-1] + 1) if len(r) else (0, 0) for r in wanted)
    return _region(_source(node), covering, read)[tuple(slice(None, None, r.step) for r in wanted)]


def _split_region(node: ir.Node, value: ir.Value, box: Box, read: Read) -> np.ndarray:
    axis = node.attributes.get_int("axis", 0) % len(box)
    sizes = [_whole(output)[axis][1] for output in node.outputs]
    offset = sum(sizes[: value.index() or 0])
    first, last = box[axis]
    return _region(_source(node), (*box[:axis], (first + offset, last + offset), *box[axis + 1 :]), read)


def _reshape_region(node: ir.Node, value: ir.Value, box: Box, read: Read) -> np.ndarray:
    """Reads only the leading rows of the source that hold the leading rows wanted."""
    whole, source = _whole(value), _whole(_source(node))
    if not box or not source:
        return _crop(_region(_source(node), source, read).reshape([size for _, size in whole]), box)
    row = int(np.prod([size for _, size in whole[1:]], dtype=np.int64))
    source_row = int(np.prod([size for _, size in source[1:]], dtype=np.int64))
    begin, end = box[0][0] * row, box[0][1] * row
    top = begin // source_row
    part = _region(_source(node), ((top, -(-end // source_row)), *source[1:]), read).reshape(-1)
    part = part[begin - top * source_row : end - top * source_row]
    return _crop(part.reshape([-1, *(size for _, size in whole[1:])]), ((0, box[0][1] - box[0][0]), *box[1:]))


_REGIONS: dict[str, Callable[[ir.Node, ir.Value, Box, Read], np.ndarray]] = {
    "Concat": _concat_region,
    "Reshape": _reshape_region,
    "Slice": _slice_region,
    "Split": _split_region,
    "Transpose": _transpose_region,
}
