"""RMSNorm and LayerNorm in NumPy, computed in the type of their input (float64 for a reference)."""

import numpy as np


def rms_norm(x: np.ndarray, weight: np.ndarray | None = None, *, epsilon: float, offset: float = 0.0) -> np.ndarray:
    """x [..., D] / sqrt(mean(x^2) + epsilon) * (weight [D] + offset); Zhang and Sennrich, 2019."""
    normalized = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon)
    return normalized if weight is None else normalized * (weight + offset)


def skip_rms_norm(
    x: np.ndarray, skip: np.ndarray, weight: np.ndarray | None = None, *, epsilon: float, offset: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """(RMSNorm(x + skip), x + skip)."""
    total = x + skip
    return rms_norm(total, weight, epsilon=epsilon, offset=offset), total


def layer_norm(
    x: np.ndarray, weight: np.ndarray | None = None, bias: np.ndarray | None = None, *, epsilon: float
) -> np.ndarray:
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over the last axis; Ba, Kiros and Hinton, 2016."""
    centred = x - np.mean(x, axis=-1, keepdims=True)
    y = centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + epsilon)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def skip_layer_norm(
    x: np.ndarray,
    skip: np.ndarray,
    weight: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    epsilon: float,
) -> tuple[np.ndarray, np.ndarray]:
    """(LayerNorm(x + skip), x + skip)."""
    total = x + skip
    return layer_norm(total, weight, bias, epsilon=epsilon), total
