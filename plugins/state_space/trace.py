"""What Transformers calls the scan of Mamba-2."""

import math
from typing import Any

from torch import Tensor

from ...builder.trace.ops import recurrence
from ...errors import UnsupportedModelError


def mamba_chunk_scan_combined(
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, math.inf),
    return_final_states: bool = False,
    z: Tensor | None = None,
    **_: Any,
) -> Tensor:
    """hidden_states [1, T, H, P], dt [1, T, H], A, D, dt_bias [H], B, C [1, T, G, N] -> [1, T, H, P], of one sequence
    that begins here. `chunk_size` says how it is computed, not what.
    """
    if initial_states is not None or return_final_states or z is not None:
        raise UnsupportedModelError("a scan of Mamba-2 with an initial state, a final state or a gate of its own")
    inputs = [hidden_states, dt, A, B, C, D, dt_bias]
    limits = {"dt_min": float(dt_limit[0]), "dt_max": float(dt_limit[1])}
    return recurrence("StateSpaceScan", inputs, hidden_states.shape, softplus=int(dt_softplus), **limits)


FUNCTIONS = {"mamba_chunk_scan_combined": mamba_chunk_scan_combined}
