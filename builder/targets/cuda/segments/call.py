"""A segment in a program: TensorRT reads and writes buffers of the arena."""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from ....lowering.dims import Symbol
from ....lowering.kernels import Kernel
from ....lowering.lowering import Lowering
from ....lowering.program import Tactic
from ....lowering.views import View, contiguous
from ....lowering.work import Work
from ..source.call import Context, CudaCall, Launch, Picks
from ..source.standard import Setting
from .forms import form_of
from .segment import DOMAIN, Segment

_LAYOUT = {"Reshape", "Transpose"}


@dataclass
class SegmentCall(CudaCall):
    """`inputs` and `outputs` lie row after row, the size that varies first. `engine`: which TensorRT runs it."""

    segment: Segment
    inputs: list[View]
    outputs: list[View]
    engine: str
    rounds: bool

    def reads(self) -> list[View]:
        return self.inputs

    def writes(self) -> list[View]:
        return self.outputs

    def bf16_reads(self) -> list[View]:
        pairs = zip(self.segment.inputs, self.inputs, strict=True)
        return [view for value, view in pairs if self.rounds and _is_only_multiplied(value, self.segment)]

    def work(self) -> Work:
        ops = sum(2 * weight.n * weight.k * len(weight.sources) for weight in self.segment.weights)
        return Work(logits_ops=ops) if self.segment.symbol is Symbol.ROWS else Work(token_ops=ops)

    def launches(self, context: Context) -> list[Launch]:
        return []

    def tactic(self, context: Context, picks: Picks) -> Tactic:
        return Tactic(self.name, f"segment ({self.engine})", {"1-": self.segment.title})


def segment_kernel(segments: Sequence[Segment], engine: str, setting: Setting) -> Kernel:
    """What lowers the nodes that stand for segments."""

    def lower(lowering: Lowering, node: ir.Node) -> None:
        segment = segments[int(node.attributes["number"].value)]
        inputs = [_in_rows(lowering, value) for value in node.inputs if value is not None]
        outputs = [lowering.values.new(out) for out in node.outputs]
        name = str(segment.weights[0].sources[0].name).removesuffix(".weight")
        lowering.values.emit(SegmentCall(name, segment, inputs, outputs, engine, setting.rounds))
        known = {id(weight) for weight in lowering.program.linear_weights}
        lowering.program.linear_weights += [weight for weight in segment.weights if id(weight) not in known]
        for out, view in zip(node.outputs, outputs, strict=True):
            lowering.values.assign(out, view)

    return Kernel("Segment", lower, DOMAIN)


def _in_rows(lowering: Lowering, value: ir.Value) -> View:
    """The value as TensorRT reads it; copied, where it lies otherwise."""
    view = lowering.values.view(value)
    plain = contiguous(view.buffer, view.shape)
    axes = range(len(view.shape))
    is_plain = all(view.shape[axis].is_one or view.strides[axis] == plain.strides[axis] for axis in axes)
    return view if is_plain and not view.offset else lowering.values.copy(view)


def _is_only_multiplied(value: ir.Value, segment: Segment) -> bool:
    """Whether matrix products alone read a value in a segment, which round it first."""
    inside = set(segment.nodes)
    for node, index in ((use.node, use.idx) for use in value.uses() if use.node in inside):
        if node.op_type in _LAYOUT:
            if node.outputs[0] in segment.outputs or not _is_only_multiplied(node.outputs[0], segment):
                return False
            continue
        form = form_of(node)
        if index or form is None or form.weight is None:
            return False
    return True
