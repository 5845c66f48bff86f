"""Causal attention in NumPy, as one softmax over the whole context, and the rounding of a quantized cache."""

import numpy as np

from ...quantization.scheme import KvType

LARGEST = {KvType.INT8: 127.0, KvType.FP8: 448.0}
"""What the largest magnitude of a token and head becomes, where each has a scale of its own."""


def attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    sinks: np.ndarray | None = None,
    slopes: np.ndarray | None = None,
    *,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
    chunk: int = 0,
) -> np.ndarray:
    """Attention of a sequence's last Tq tokens to its context of Tk tokens, in the type of q (float64 for a reference).

    q [Tq, H, D], k [Tk, Hk, D], v [Tk, Hk, Dv] -> [Tq, H, Dv]. Query head h reads key-value head h // (H // Hk). The
    query at position i sees the keys j with i - window < j <= i (window 0: all j <= i), of those the ones from the last
    multiple of `chunk` on (0: all). sinks [H] are logits that join the denominator alone (Xiao et al., 2023; as learned
    by gpt-oss). slopes [H] times i - j are taken off scores (ALiBi; Press et al., 2022).
    """
    group = q.shape[1] // k.shape[1]
    scores = np.einsum("ihd,jhd->hij", q, np.repeat(k, group, axis=1)) * scale
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    own = np.arange(len(k) - len(q), len(k))[:, None]
    key = np.arange(len(k))[None, :]
    if slopes is not None:
        scores = scores - slopes[:, None, None] * (own - key)
    visible = (key <= own) & ((key > own - window) if window else True)
    visible = visible & ((key >= own // chunk * chunk) if chunk else True)
    scores = np.where(visible, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    if sinks is not None:
        top = np.maximum(top, sinks[:, None, None])
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks[:, None, None] - top)
    return np.einsum("hij,jhd->ihd", weights / total, np.repeat(v, group, axis=1))


def cached(x: np.ndarray, kind: KvType, scale: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Keys or values, float32 [T, Hk, D], as a cache holds them: what lies there, [T, Hk, D], and its scales [T, Hk].

    Both float32; the cache stands for their product. `scale` [Hk]: of each head, known beforehand. Without, each token
    and head has its own, from its largest magnitude.
    """
    if scale is None:
        scales = np.abs(x).max(axis=-1) / np.float32(LARGEST[kind])
    else:
        scales = np.broadcast_to(scale.astype(np.float32), x.shape[:-1])
    multiple = x / np.where(scales == 0, np.float32(1), scales)[..., None]
    return (_int8 if kind is KvType.INT8 else _e4m3)(multiple), scales


def _int8(x: np.ndarray) -> np.ndarray:
    """To the nearest whole number, ties to even, within a byte."""
    return np.clip(np.rint(x), -128, 127)


def _e4m3(x: np.ndarray) -> np.ndarray:
    """To the nearest number of FP8 E4M3 (Micikevicius et al., 2022), ties to even; larger ones to the largest, 448.

    Numbers have three bits after the leading one, down to 2^-6; below, steps are as there, 2^-9.
    """
    _, exponent = np.frexp(x)  # x = m 2^exponent with m in [1/2, 1)
    step = np.ldexp(np.float32(1), np.maximum(exponent - 1, -6) - 3)
    return np.clip(np.rint(x / step) * step, -448, 448)
