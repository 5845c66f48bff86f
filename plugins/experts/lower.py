"""Experts as a call, for any target."""

from dataclasses import dataclass
from functools import partial

import onnx_ir as ir

from ...builder.lowering.dims import Dim
from ...builder.lowering.fused_call import FusedCall
from ...builder.lowering.kernels import Kernel
from ...builder.lowering.lowering import Lowering
from ...builder.lowering.nodes import parsed
from ...builder.lowering.program import LinearWeight
from ...builder.lowering.views import View
from ...builder.lowering.work import Work
from .op import ExpertsAttributes


@dataclass
class Experts(FusedCall):
    """y [M, H] = the sum over j of weights[m, j] times what the expert indices[m, j] makes of x [M, H]."""

    x: View
    indices: View
    weights: View
    up: LinearWeight  # gate and up where experts are gated
    down: LinearWeight
    biases: tuple[View | None, View | None, View | None]  # of gate, up and down
    attributes: ExpertsAttributes
    y: View
    rows: Dim

    def reads(self) -> list[View]:
        return [view for view in (self.x, self.indices, self.weights, *self.biases) if view is not None]

    def writes(self) -> list[View]:
        return [self.y]

    def work(self) -> Work:
        matrices = [*self.up.sources, *self.down.sources]
        return Work(token_ops=2 * self.up.active * len(matrices) * self.up.n * self.up.k * self.rows.count)


def kernels(call: type[Experts]) -> tuple[Kernel, ...]:
    """The kernels of a target, whose calls are made by `call`."""
    return (Kernel("Experts", partial(_lower, call)),)


def _lower(call: type[Experts], lowering: Lowering, node: ir.Node) -> None:
    (x, indices, weights, gate, up, down, *biases), attributes = parsed(node)
    values, packed, out = lowering.values, lowering.weights, node.outputs[0]
    rows = values.matrix(values.view(x))
    chosen = values.matrix(values.view(indices))
    active = chosen.shape[1].count
    y = values.new(out)
    made = call(
        name=(node.name or "").rpartition("/")[0],
        x=rows,
        indices=chosen,
        weights=values.matrix(values.view(weights)),
        up=packed.experts([up] if gate is None else [gate, up], active),
        down=packed.experts([down], active),
        biases=tuple(packed.optional_view(bias) for bias in biases),  # type: ignore[arg-type]
        attributes=attributes,
        y=values.matrix(y),
        rows=rows.shape[0],
    )
    made.allocate(values)
    values.emit(made)
    values.assign(out, y)
