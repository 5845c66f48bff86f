"""What models call linear attention: with a delta rule, and as the matrix memory of xLSTM."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ...builder.trace.ops import recurrence

_NORM_EPSILON = 1e-6  # of all these functions


def chunk_gated_delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    use_qk_l2norm_in_kernel: bool = False,
    **_: Any,
) -> tuple[Tensor, None]:
    """query, key [1, T, Hk, Dk], value [1, T, H, Dv], g [1, T, H] or [1, T, H, Dk], beta [1, T, H] -> [1, T, H, Dv], of
    one sequence that begins here, and no state."""
    attributes = {"scale": query.shape[-1] ** -0.5, "norm_epsilon": _NORM_EPSILON if use_qk_l2norm_in_kernel else 0.0}
    return recurrence("LinearAttention", [query, key, value, g, beta], value.shape, **attributes), None


def mlstm(
    self: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    igate: Tensor,
    fgate: Tensor,
    c_initial: Tensor | None = None,
    n_initial: Tensor | None = None,
    m_initial: Tensor | None = None,
    return_last_states: bool | None = None,
    mode: str | None = None,
) -> tuple[Tensor, tuple[None, None, None]]:
    """query, key [1, H, T, Dk], value [1, H, T, Dv], igate, fgate [1, H, T] -> [1, H, T, Dv], of one sequence that
    begins here, and no states.

    The matrix memory of xLSTM (Beck et al., 2024) is linear attention: a channel more of values, of ones, makes the
    normalizer, and gates are kept relative to the largest so far, a max-plus recurrence.
    """
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    add, keep = igate.transpose(1, 2), functional.logsigmoid(fgate.transpose(1, 2))
    top = recurrence("LinearRecurrence", [add, keep], add.shape, max_plus=1)
    before = functional.pad(top, (0, 0, 1, -1))
    weighted = key * torch.exp(add - top)[..., None]
    both = torch.cat([value, torch.ones_like(value[..., :1])], dim=-1)
    inputs = [query, weighted, both, keep + before - top, None]
    sums, weights = recurrence("LinearAttention", inputs, both.shape, scale=query.shape[-1] ** -0.5).split(
        [value.shape[-1], 1], dim=-1
    )
    norm = torch.maximum(weights.abs(), torch.exp(-top)[..., None]) + self.config.eps
    return (sums / norm).transpose(1, 2), (None, None, None)


FUNCTIONS = {
    "chunk_gated_delta_rule": chunk_gated_delta_rule,
    "chunk_kda": chunk_gated_delta_rule,
    "xLSTMBackend.forward": mlstm,
}
