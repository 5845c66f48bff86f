"""The selective scan in NumPy, token after token."""

import numpy as np


def selective_scan(u: np.ndarray, dt: np.ndarray, A: np.ndarray, B: np.ndarray, C: np.ndarray) -> np.ndarray:
    """A whole sequence, in the type of u (float64 for a reference): u, dt [T, D], A [N, D], B, C [T, N] -> [T, D].

    A state space model for every channel, discretized by its own steps (Gu and Dao, "Mamba", 2023):
    h <- exp(dt A) h + dt u B, y = C . h.
    """
    state = np.zeros(A.shape, u.dtype)
    y = np.empty_like(u)
    for t in range(len(u)):
        state = np.exp(dt[t] * A) * state + B[t][:, None] * (dt[t] * u[t])
        y[t] = C[t] @ state
    return y
