"""Linear attention with decay and delta rule in NumPy, token after token."""

import numpy as np


def linear_attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    decay: np.ndarray | None = None,
    beta: np.ndarray | None = None,
    *,
    scale: float,
    norm_epsilon: float | None = None,
) -> np.ndarray:
    """A whole sequence, in the type of q (float64 for a reference).

    q, k [T, Hk, Dk], v [T, H, Dv], decay [T, H], [T, H, Dk] or [H], beta [T, H] -> [T, H, Dv]. Head h reads head
    h // (H // Hk) of q and k.

    Without beta, a state S [Dk, Dv] gains k v^T (linear attention; Katharopoulos et al., 2020). With it, S is corrected
    towards giving v for k, by beta of what is missing (the delta rule; Yang et al., 2024). Before that, `decay` lets it
    fade: it is the logarithm of a factor for the head (Gated DeltaNet; Yang et al., 2025; lightning attention, a
    constant one; Qin et al., 2024) or for each key channel (Kimi Delta Attention; Kimi Team, 2025). With
    `norm_epsilon`, queries and keys are divided by the root of the sum of their squares + norm_epsilon.
    """
    group = v.shape[1] // q.shape[1]
    if norm_epsilon is not None:
        q, k = (x / np.sqrt(np.square(x).sum(-1, keepdims=True) + norm_epsilon) for x in (q, k))
    q, k = (np.repeat(x, group, axis=1) for x in (q * scale, k))
    if decay is not None:
        decay = np.exp(np.broadcast_to(decay, v.shape[:2]) if decay.ndim < 3 else decay)
        decay = decay.reshape(*v.shape[:2], -1, 1)
    state = np.zeros((v.shape[1], k.shape[2], v.shape[2]), q.dtype)
    y = np.empty_like(v)
    for t in range(len(q)):
        if decay is not None:
            state = state * decay[t]
        added = v[t]
        if beta is not None:
            added = (added - np.einsum("hkv,hk->hv", state, k[t])) * beta[t][:, None]
        state = state + k[t][:, :, None] * added[:, None, :]
        y[t] = np.einsum("hkv,hk->hv", state, q[t])
    return y
