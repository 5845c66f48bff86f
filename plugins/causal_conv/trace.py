"""What Transformers calls a causal convolution."""

from typing import Any

from torch import Tensor
from transformers.activations import ACT2FN

from ...builder.trace.ops import recurrence
from .op import Activation


def causal_conv1d_fn(
    hidden_states: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str | None = None, **_: Any
) -> Tensor:
    """hidden_states [1, C, T], weight [C, K], bias [C] -> [1, C, T], of one sequence that begins here."""
    x, fused = hidden_states.transpose(1, 2), activation in {None, *Activation}
    inputs = [x, weight.transpose(0, 1), bias]
    y = recurrence("CausalConv1D", inputs, x.shape, activation=(activation or "") if fused else "")
    y = y.transpose(1, 2)
    return y if fused or activation is None else ACT2FN[activation](y)


FUNCTIONS = {"causal_conv1d_fn": causal_conv1d_fn}
