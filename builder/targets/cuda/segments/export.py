"""A segment as an ONNX model of standard operations, whose inputs and outputs are the program's buffers."""

import onnx_ir as ir

from ....lowering.views import DType, View
from ....passes.derived import Read
from ..source.standard import Setting, StandardGraph, rows_first
from .call import SegmentCall
from .forms import form_of

OPSET, IR_VERSION = 23, 11
_TYPES = {
    DType.F32: ir.DataType.FLOAT,
    DType.BF16: ir.DataType.BFLOAT16,
    DType.I32: ir.DataType.INT32,
    DType.BOOL: ir.DataType.BOOL,
}


def export(call: SegmentCall, setting: Setting, read: Read) -> ir.Model:
    """The model of a call whose buffers have their types. `input_N` and `output_N` have the size that varies first."""
    graph, segment = StandardGraph(setting, read), call.segment
    inputs = []
    for number, (value, view) in enumerate(zip(segment.inputs, call.inputs, strict=True)):
        outer = _boundary(f"input_{number}", view)
        inputs.append(outer)
        inner = _moved(graph, outer, rows_first(view.shape), inverse=True)
        assert value.dtype is not None
        graph.values[value] = inner if value.dtype == outer.dtype else graph.cast(inner, value.dtype)
    for node in segment.nodes:
        form = form_of(node)
        assert form is not None
        results = form.write(graph, node)
        graph.values.update(zip(node.outputs, results, strict=False))
    outputs = []
    for number, (value, view) in enumerate(zip(segment.outputs, call.outputs, strict=True)):
        inner = _moved(graph, graph.values[value], rows_first(view.shape))
        last = graph.cast(inner, _TYPES[view.dtype])
        declared = _boundary(f"output_{number}", view)
        last.name, last.shape, last.type = declared.name, declared.shape, declared.type
        outputs.append(last)
    made = ir.Graph(
        inputs,
        outputs,
        nodes=graph.nodes,
        initializers=graph.initializers,
        opset_imports={"": OPSET},
        name=f"segment_{segment.number}",
    )
    return ir.Model(made, ir_version=IR_VERSION)


def row_sizes(view: View) -> list[int]:
    """The sizes of a boundary's tensor after the one that varies."""
    return [view.shape[axis].count for axis in rows_first(view.shape)[1:]]


def _boundary(name: str, view: View) -> ir.Value:
    return ir.Value(name=name, shape=ir.Shape(["rows", *row_sizes(view)]), type=ir.TensorType(_TYPES[view.dtype]))


def _moved(graph: StandardGraph, value: ir.Value, order: list[int], *, inverse: bool = False) -> ir.Value:
    """The value with its axes in another order, or back from there."""
    perm = [order.index(axis) for axis in range(len(order))] if inverse else order
    return value if perm == sorted(perm) else graph.op("Transpose", value, perm=perm)
