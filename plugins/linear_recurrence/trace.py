"""What models call a linear recurrence of channels."""

from typing import Any

import torch
from torch import Tensor

from ...builder.trace.ops import recurrence


def rnn_scan(
    self: Any,
    hidden_states: Tensor,
    recurrent_gate: Tensor,
    reset: Tensor,
    recurrent_states: Tensor | None,
    acc_dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, None]:
    """hidden_states, recurrent_gate [1, T, D], reset [1, T, 1] -> [1, T, D], of one sequence that begins here, and no
    state. Where `reset`, a new sequence begins."""
    return recurrence("LinearRecurrence", [hidden_states, recurrent_gate * ~reset], hidden_states.shape), None


FUNCTIONS = {"RecurrentGemmaRglru._rnn_scan": rnn_scan}
