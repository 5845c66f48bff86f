"""What Transformers calls Mamba's selective scan."""

from typing import Any

from torch import Tensor
from torch.nn import functional

from ...builder.trace.ops import recurrence


def selective_scan_fn(
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    **_: Any,
) -> Tensor:
    """hidden_states, dt, z [1, D, T], A [D, N], B, C [1, N, T], D and delta_bias [D] -> [1, D, T], of one sequence that
    begins here. All but the scan itself are operations of their own."""
    u, dt, B, C = (x.transpose(1, 2) for x in (hidden_states, dt, B, C))
    dt = dt if delta_bias is None else dt + delta_bias
    dt = functional.softplus(dt) if delta_softplus else dt
    y = recurrence("SelectiveScan", [u, dt, A.transpose(0, 1), B, C], u.shape)
    y = y if D is None else y + u * D
    y = y if z is None else y * functional.silu(z.transpose(1, 2))
    return y.transpose(1, 2)


FUNCTIONS = {"selective_scan_fn": selective_scan_fn}
