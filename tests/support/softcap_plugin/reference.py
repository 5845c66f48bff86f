"""SoftCap in NumPy."""

import numpy as np


def softcap(x: np.ndarray, cap: float) -> np.ndarray:
    """x [..., D] within (-cap, cap)."""
    return cap * np.tanh(x / cap)
