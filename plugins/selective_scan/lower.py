"""SelectiveScan as a call, for any target."""

from dataclasses import dataclass
from functools import partial

import onnx_ir as ir

from ...builder.lowering.kernels import Kernel
from ...builder.lowering.lowering import Lowering, new_state
from ...builder.lowering.nodes import parsed
from ...builder.lowering.program import Call, State
from ...builder.lowering.views import View


@dataclass
class SelectiveScan(Call):
    """u, dt [T, D], A [N, D], B, C [T, N] -> y [T, D]; the state holds a vector [N] for each channel."""

    u: View
    dt: View
    A: View
    B: View
    C: View
    y: View
    state: State

    def reads(self) -> list[View]:
        return [self.u, self.dt, self.A, self.B, self.C]

    def writes(self) -> list[View]:
        return [self.y]


def kernels(call: type[SelectiveScan]) -> tuple[Kernel, ...]:
    """The kernels of a target, whose calls are made by `call`."""
    return (Kernel("SelectiveScan", partial(_lower, call)),)


def _lower(call: type[SelectiveScan], lowering: Lowering, node: ir.Node) -> None:
    (u, dt, A, B, C), _ = parsed(node)
    values, out = lowering.values, node.outputs[0]
    channels, steps, inputs, gates = (values.matrix(values.view(value)) for value in (u, dt, B, C))
    y, state = values.new(out), new_state(lowering, node)
    weight = lowering.weights.plain_view(A)
    values.emit(call(state.name, channels, steps, weight, inputs, gates, values.matrix(y), state))
    values.assign(out, y)
