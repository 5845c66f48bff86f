"""The gated half of an MLP in NumPy."""

import numpy as np

from ..linear.activation_function import ActivationFunction
from ..linear.reference import linear


def gated_mlp(
    x: np.ndarray,
    gate_weight: np.ndarray,
    up_weight: np.ndarray,
    gate_bias: np.ndarray | None = None,
    up_bias: np.ndarray | None = None,
    *,
    activation: ActivationFunction = ActivationFunction.SILU,
) -> np.ndarray:
    """act(x Wg^T + bg) * (x Wu^T + bu): x [..., K], weights [N, K], biases [N] -> [..., N]."""
    return linear(x, gate_weight, gate_bias, activation=activation) * linear(x, up_weight, up_bias)
