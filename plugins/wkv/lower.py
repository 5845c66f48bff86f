"""Wkv as a call, for any target."""

from dataclasses import dataclass
from functools import partial

import onnx_ir as ir

from ...builder.lowering.kernels import Kernel
from ...builder.lowering.lowering import Lowering, new_state
from ...builder.lowering.nodes import parsed
from ...builder.lowering.program import Call, State
from ...builder.lowering.views import View


@dataclass
class Wkv(Call):
    """w, u [D], k, v [T, D] -> y [T, D]; the state is [3, D]."""

    w: View
    u: View
    k: View
    v: View
    y: View
    state: State

    def reads(self) -> list[View]:
        return [self.w, self.u, self.k, self.v]

    def writes(self) -> list[View]:
        return [self.y]


def kernels(call: type[Wkv]) -> tuple[Kernel, ...]:
    """The kernels of a target, whose calls are made by `call`."""
    return (Kernel("Wkv", partial(_lower, call)),)


def _lower(call: type[Wkv], lowering: Lowering, node: ir.Node) -> None:
    (w, u, k, v), _ = parsed(node)
    values, out = lowering.values, node.outputs[0]
    gain, bonus = (lowering.weights.plain_view(value) for value in (w, u))
    keys, averaged = (values.matrix(values.view(value)) for value in (k, v))
    y, state = values.new(out), new_state(lowering, node)
    values.emit(call(state.name, gain, bonus, keys, averaged, values.matrix(y), state))
    values.assign(out, y)
