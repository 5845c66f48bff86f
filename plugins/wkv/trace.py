"""What models call the WKV operator of RWKV-4."""

import torch
from torch import Tensor

from ...builder.trace.ops import recurrence


def rwkv_linear_attention(
    time_decay: Tensor,
    time_first: Tensor,
    key: Tensor,
    value: Tensor,
    state: tuple[Tensor, ...] | None = None,
    return_state: bool = False,
) -> tuple[Tensor, None]:
    """time_decay, time_first [D], key, value [1, T, D] -> [1, T, D], of one sequence that begins here, and no state."""
    return recurrence("Wkv", [-torch.exp(time_decay), time_first, key, value], key.shape), None


FUNCTIONS = {"rwkv_linear_attention": rwkv_linear_attention}
