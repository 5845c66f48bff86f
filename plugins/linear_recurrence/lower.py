"""LinearRecurrence as a call, for any target."""

from dataclasses import dataclass
from functools import partial

import onnx_ir as ir

from ...builder.lowering.kernels import Kernel
from ...builder.lowering.lowering import Lowering, new_state
from ...builder.lowering.nodes import parsed
from ...builder.lowering.program import Call, State
from ...builder.lowering.views import View


@dataclass
class LinearRecurrence(Call):
    """x, a [T, D] -> h [T, D]; the state holds the last h, [D]."""

    x: View
    a: View
    h: View
    max_plus: bool
    state: State

    def reads(self) -> list[View]:
        return [self.x, self.a]

    def writes(self) -> list[View]:
        return [self.h]


def kernels(call: type[LinearRecurrence]) -> tuple[Kernel, ...]:
    """The kernels of a target, whose calls are made by `call`."""
    return (Kernel("LinearRecurrence", partial(_lower, call)),)


def _lower(call: type[LinearRecurrence], lowering: Lowering, node: ir.Node) -> None:
    (x, a), attributes = parsed(node)
    values, out = lowering.values, node.outputs[0]
    added, factors = (values.matrix(values.view(value)) for value in (x, a))
    h, state = values.new(out), new_state(lowering, node)
    values.emit(call(state.name, added, factors, values.matrix(h), bool(attributes.max_plus), state))
    values.assign(out, h)
