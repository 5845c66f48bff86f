"""What experts do between their two projections."""

from dataclasses import dataclass

import numpy as np

from ..linear.activation_function import ActivationFunction


@dataclass(frozen=True)
class Gate:
    """act(min(gate, limit)) * (clamp(up, -limit, limit) + up_offset); a limit of 0 is none. Not `gated`: act(up)."""

    activation: ActivationFunction
    limit: float = 0.0
    up_offset: float = 0.0
    gated: bool = True

    def __call__(self, gate: np.ndarray | None, up: np.ndarray) -> np.ndarray:
        """The function of gate and up, in their precision."""
        if gate is None or not self.gated:
            return self.activation(up)
        if self.limit:
            gate, up = np.minimum(gate, self.limit), np.clip(up, -self.limit, self.limit)
        return self.activation(gate) * (up + self.up_offset)
