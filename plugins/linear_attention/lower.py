"""LinearAttention as a call, for any target."""

from dataclasses import dataclass
from functools import partial

import onnx_ir as ir

from ...builder.lowering.dims import ONE
from ...builder.lowering.kernels import Kernel
from ...builder.lowering.lowering import Lowering, new_state
from ...builder.lowering.nodes import parsed
from ...builder.lowering.program import Call, State
from ...builder.lowering.values import Values
from ...builder.lowering.views import View


@dataclass
class LinearAttention(Call):
    """q, k [T, Hk, Dk], v [T, H, Dv], decay [T, H, 1 or Dk], whose T may be 1, beta [T, H, 1] -> out [T, H, Dv]; the
    state holds a matrix [Dk, Dv] for each head."""

    q: View
    k: View
    v: View
    decay: View | None
    beta: View | None
    out: View
    scale: float
    norm_epsilon: float
    state: State

    def reads(self) -> list[View]:
        return [view for view in (self.q, self.k, self.v, self.decay, self.beta) if view is not None]

    def writes(self) -> list[View]:
        return [self.out]


def kernels(call: type[LinearAttention]) -> tuple[Kernel, ...]:
    """The kernels of a target, whose calls are made by `call`."""
    return (Kernel("LinearAttention", partial(_lower, call)),)


def _lower(call: type[LinearAttention], lowering: Lowering, node: ir.Node) -> None:
    (q, k, v, decay, beta), attributes = parsed(node)
    values, out = lowering.values, node.outputs[0]
    queries, keys, added = (values.heads(values.view(value)) for value in (q, k, v))
    factors, rates = (_per_head(values, value) for value in (decay, beta))
    target, state = values.new(out), new_state(lowering, node)
    scale, epsilon = attributes.scale, attributes.norm_epsilon
    made = call(state.name, queries, keys, added, factors, rates, values.heads(target), scale, epsilon, state)
    values.emit(made)
    values.assign(out, target)


def _per_head(values: Values, value: ir.Value | None) -> View | None:
    """[H], [1, T, H] or [1, T, H, D] as [T, H, D], where T or D may be 1."""
    if value is None:
        return None
    view = values.view(value)
    return values.heads(view if len(view.shape) == 4 else values.reshaped(view, (*view.shape, ONE)))
