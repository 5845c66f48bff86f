"""Which rows of which parameters the rows of a derived matrix are, where it is nothing but such rows."""

from typing import NamedTuple

import onnx_ir as ir

from . import numpy_ops
from .graph import constant, is_op, is_parameter, static_dims


class RowSpan(NamedTuple):
    """Rows [first, last) of a parameter."""

    parameter: str
    first: int
    last: int


def row_spans(value: ir.Value) -> list[RowSpan] | None:
    """The spans that make up a matrix [N, K], in order: a parameter, or Concat, Slice or Split of such along N.

    None where it is anything else.
    """
    shape = static_dims(value)
    if shape is None or len(shape) != 2:
        return None
    if is_parameter(value):
        assert value.name is not None
        return [RowSpan(value.name, 0, shape[0])]
    node = value.producer()
    if node is None:
        return None
    if is_op(node, "Concat"):
        parts = [None if part is None else row_spans(part) for part in node.inputs]
        if node.attributes.get_int("axis", 0) % 2 or any(part is None for part in parts):
            return None
        return [span for part in parts for span in part or ()]
    if is_op(node, "Slice", "Split") and node.inputs[0] is not None:
        window = _window(node, value)
        spans = row_spans(node.inputs[0])
        return None if window is None or spans is None else _cut(spans, *window)
    return None


def _window(node: ir.Node, value: ir.Value) -> tuple[int, int] | None:
    """The rows of its source that a Slice or Split takes; None where it takes anything but a run of whole rows."""
    if node.op_type == "Split":
        sizes = [shape[0] if (shape := static_dims(output)) else 0 for output in node.outputs]
        first = sum(sizes[: value.index() or 0])
        return None if node.attributes.get_int("axis", 0) % 2 else (first, first + sizes[value.index() or 0])
    source = node.inputs[0]
    shape = static_dims(source) if source is not None else None
    bounds = [constant(operand) for operand in node.inputs[1:]]
    if shape is None or any(bound is None for bound in bounds):
        return None
    windows = numpy_ops.slices(2, *bounds)  # type: ignore[arg-type]
    rows, columns = (range(size)[window] for size, window in zip(shape, windows, strict=True))
    if rows.step != 1 or columns != range(shape[1]):
        return None
    return rows.start, rows.stop


def _cut(spans: list[RowSpan], first: int, last: int) -> list[RowSpan]:
    """Rows [first, last) of the rows that spans make up."""
    cut, offset = [], 0
    for name, begin, end in spans:
        low, high = max(first - offset, 0), min(last - offset, end - begin)
        if low < high:
            cut.append(RowSpan(name, begin + low, begin + high))
        offset += end - begin
    return cut
