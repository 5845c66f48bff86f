"""The WKV operator in NumPy, token after token."""

import numpy as np


def wkv(w: np.ndarray, u: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """A whole sequence, in the type of k (float64 for a reference): w, u [D], k, v [T, D] -> [T, D].

    Each output is the average of the values so far, weighted by exp(key); weights gain w (a negative number) with every
    token, and a token's own key gains u (RWKV-4; Peng et al., 2023). Weights are kept relative to exp(top).
    """
    values, weights, top = np.zeros_like(w), np.zeros_like(w), np.full_like(w, -np.inf)
    y = np.empty_like(v)
    for t in range(len(k)):
        seen = np.maximum(top, k[t] + u)
        past, own = np.exp(top - seen), np.exp(k[t] + u - seen)
        y[t] = (past * values + own * v[t]) / (past * weights + own)
        following = np.maximum(top + w, k[t])
        keep, add = np.exp(top + w - following), np.exp(k[t] - following)
        values, weights, top = keep * values + add * v[t], keep * weights + add, following
    return y
