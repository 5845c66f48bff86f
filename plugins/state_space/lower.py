"""StateSpaceScan as a call, for any target."""

from dataclasses import dataclass
from functools import partial

import onnx_ir as ir

from ...builder.lowering.kernels import Kernel
from ...builder.lowering.lowering import Lowering, new_state
from ...builder.lowering.nodes import parsed
from ...builder.lowering.program import Call, State
from ...builder.lowering.views import View


@dataclass
class StateSpace(Call):
    """x [T, H, P], dt [T, H], a, d, dt_bias [H], b, c [T, G, N] -> y [T, H, P]; the state is [H, P, N]."""

    x: View
    dt: View
    a: View
    b: View
    c: View
    d: View | None
    dt_bias: View | None
    y: View
    softplus: bool
    dt_min: float
    dt_max: float
    state: State

    def reads(self) -> list[View]:
        inputs = (self.x, self.dt, self.a, self.b, self.c, self.d, self.dt_bias)
        return [view for view in inputs if view is not None]

    def writes(self) -> list[View]:
        return [self.y]


def kernels(call: type[StateSpace]) -> tuple[Kernel, ...]:
    """The kernels of a target, whose calls are made by `call`."""
    return (Kernel("StateSpaceScan", partial(_lower, call)),)


def _lower(call: type[StateSpace], lowering: Lowering, node: ir.Node) -> None:
    (x, dt, a, b, c, d, dt_bias), attributes = parsed(node)
    values, weights, out = lowering.values, lowering.weights, node.outputs[0]
    x, b, c = (values.heads(values.view(value)) for value in (x, b, c))
    dt, y, state = values.matrix(values.view(dt)), values.new(out), new_state(lowering, node)
    made = call(
        state.name,
        x=x,
        dt=dt,
        a=weights.plain_view(a),
        b=b,
        c=c,
        d=weights.optional_view(d),
        dt_bias=weights.optional_view(dt_bias),
        y=values.heads(y),
        softplus=bool(attributes.softplus),
        dt_min=attributes.dt_min,
        dt_max=attributes.dt_max,
        state=state,
    )
    values.emit(made)
    values.assign(out, y)
