"""A mixture of experts in NumPy."""

import numpy as np

from .gate import Gate


def experts(
    x: np.ndarray,
    indices: np.ndarray,
    weights: np.ndarray,
    gate: np.ndarray | None,
    up: np.ndarray,
    down: np.ndarray,
    gate_bias: np.ndarray | None = None,
    up_bias: np.ndarray | None = None,
    down_bias: np.ndarray | None = None,
    *,
    function: Gate,
) -> np.ndarray:
    """The sum over j of weights[t, j] * (function(x Wg^T + bg, x Wu^T + bu) Wd^T + bd) of expert indices[t, j].

    x [T, H], indices and weights [T, k], gate and up [E, I, H], down [E, H, I], biases [E, I] and [E, H] -> [T, H].
    An index that no expert has adds nothing.
    """
    y = np.zeros((len(x), down.shape[1]), x.dtype)
    for t, j in np.ndindex(indices.shape):
        e = int(indices[t, j])
        if not 0 <= e < len(up):
            continue
        gates = None if gate is None else _linear(x[t], gate[e], gate_bias, e)
        inner = function(gates, _linear(x[t], up[e], up_bias, e))
        y[t] += weights[t, j] * _linear(inner, down[e], down_bias, e)
    return y


def _linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, expert: int) -> np.ndarray:
    return x @ weight.T + (0 if bias is None else bias[expert])
