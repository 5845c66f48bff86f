"""Causal attention in NumPy, as one softmax over the whole context."""

import numpy as np


def attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    sinks: np.ndarray | None = None,
    *,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
) -> np.ndarray:
    """Attention of a sequence's last Tq tokens to its context of Tk tokens, in the type of q (float64 for a reference).

    q [Tq, H, D], k [Tk, Hk, D], v [Tk, Hk, Dv] -> [Tq, H, Dv]. Query head h reads key-value head h // (H // Hk). The
    query at position i sees the keys j with i - window < j <= i (window 0: all j <= i). sinks [H] are logits that join
    the denominator alone (Xiao et al., 2023; as learned by gpt-oss).
    """
    group = q.shape[1] // k.shape[1]
    scores = np.einsum("ihd,jhd->hij", q, np.repeat(k, group, axis=1)) * scale
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    own = np.arange(len(k) - len(q), len(k))[:, None]
    key = np.arange(len(k))[None, :]
    visible = (key <= own) & ((key > own - window) if window else True)
    scores = np.where(visible, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    if sinks is not None:
        top = np.maximum(top, sinks[:, None, None])
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks[:, None, None] - top)
    return np.einsum("hij,jhd->ihd", weights / total, np.repeat(v, group, axis=1))
