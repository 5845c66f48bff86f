"""Write Slices that cut a tensor into pieces as a Split.

Requires: constants as initializers.
Ensures: Slices of one value that cut one axis into adjoining pieces without a rest are a Split. Counts the Splits made.
"""

from collections import defaultdict

import numpy as np
import onnx_ir as ir

from .derived import is_derived
from .graph import add_constant, constant, dims, insert_before, is_op, optional_input, replace

Piece = tuple[int, int, ir.Node]  # start, end, the Slice


def make_splits(graph: ir.Graph) -> int:
    cuts: dict[tuple[int, int], list[Piece]] = defaultdict(list)
    for node in graph:
        if (cut := _cut(node)) is not None:
            axis, piece = cut
            cuts[id(node.inputs[0]), axis].append(piece)
    return sum(_split_slices(axis, pieces) for (_, axis), pieces in cuts.items())


def split_before(anchor: ir.Node, source: ir.Value, axis: int, sizes: list[int]) -> ir.Node:
    """A Split of `source` along `axis`, put before `anchor`."""
    shape = dims(source)
    assert shape is not None
    assert anchor.graph is not None
    lengths = add_constant(anchor.graph, np.array(sizes, np.int64), "split_" + "_".join(map(str, sizes)))
    shapes = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
    dtype = source.dtype or ir.DataType.FLOAT
    return insert_before(anchor, "Split", [source, lengths], shapes, {"axis": axis}, dtype=dtype)


def _cut(node: ir.Node) -> tuple[int, Piece] | None:
    """Axis, start and end of a Slice with step 1 along one axis of known length."""
    if not is_op(node, "Slice") or is_derived(node.outputs[0]) or node.inputs[0] is None:
        return None
    bounds = [value for value in node.inputs[1:] if value is not None]
    starts, ends, axes, steps = (constant(optional_input(node, i)) for i in range(1, 5))
    shape = dims(node.inputs[0])
    if any(constant(value) is None for value in bounds) or starts is None or ends is None:
        return None
    if shape is None or len(starts) != 1:
        return None
    axis = 0 if axes is None else int(axes[0]) % len(shape)
    length = shape[axis]
    if not isinstance(length, int) or (steps is not None and steps[0] != 1):
        return None
    start, end, _ = slice(int(starts[0]), int(ends[0])).indices(length)
    return axis, (start, end, node)


def _split_slices(axis: int, pieces: list[Piece]) -> bool:
    pieces = sorted(pieces, key=lambda piece: piece[:2])
    source = pieces[0][2].inputs[0]
    assert source is not None
    shape = dims(source)
    assert shape is not None
    bounds = [0, *(end for _, end, _ in pieces)]
    adjoining = all(start == bound < end for bound, (start, end, _) in zip(bounds, pieces, strict=False))
    if len(pieces) < 2 or not adjoining or bounds[-1] != shape[axis]:
        return False
    first = _earliest([node for _, _, node in pieces])
    split = split_before(first, source, axis, [end - start for start, end, _ in pieces])
    for output, (_, _, node) in zip(split.outputs, pieces, strict=True):
        replace(node.outputs[0], output)
    return True


def _earliest(nodes: list[ir.Node]) -> ir.Node:
    wanted = set(nodes)
    graph = nodes[0].graph
    assert graph is not None
    return next(node for node in graph if node in wanted)
