"""A depthwise causal convolution in NumPy."""

import numpy as np


def causal_conv1d(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, *, silu: bool = False
) -> np.ndarray:
    """x [T, C], weight [K, C], bias [C] -> [T, C]; tokens before the first are zeros."""
    tokens, width = len(x), len(weight)
    padded = np.concatenate([np.zeros_like(x[:1]).repeat(width - 1, axis=0), x])
    y = np.sum([padded[k : k + tokens] * weight[k] for k in range(width)], axis=0)
    y = y if bias is None else y + bias
    return y / (1 + np.exp(-y)) if silu else y
