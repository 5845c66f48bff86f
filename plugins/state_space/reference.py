"""The recurrence of Mamba-2 in NumPy, token by token (Dao and Gu, "Transformers are SSMs", 2024)."""

import math

import numpy as np


def state_space_scan(
    x: np.ndarray,
    dt: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    d: np.ndarray | None = None,
    dt_bias: np.ndarray | None = None,
    *,
    softplus: bool = False,
    limits: tuple[float, float] = (0.0, math.inf),
) -> np.ndarray:
    """x [T, H, P], dt [T, H], a, d, dt_bias [H], b, c [T, G, N] -> [T, H, P]; the state [H, P, N] begins with zeros."""
    tokens, heads, width = x.shape
    dt = dt if dt_bias is None else dt + dt_bias
    dt = np.clip(np.logaddexp(0, dt) if softplus else dt, *limits)
    b, c = (np.repeat(each, heads // each.shape[1], axis=1) for each in (b, c))
    state, y = np.zeros((heads, width, b.shape[2]), x.dtype), np.empty_like(x)
    for t in range(tokens):
        added = np.einsum("hp,hn->hpn", x[t] * dt[t][:, None], b[t])
        state = np.exp(dt[t] * a)[:, None, None] * state + added
        y[t] = np.einsum("hpn,hn->hp", state, c[t])
    return y if d is None else y + d[:, None] * x
