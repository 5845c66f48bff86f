"""The linear recurrence in NumPy, token after token."""

import numpy as np


def linear_recurrence(x: np.ndarray, a: np.ndarray, *, max_plus: bool = False) -> np.ndarray:
    """A whole sequence, in the type of x (float64 for a reference): x, a [T, D] -> h [T, D].

    h <- a h + x, beginning with 0, as in Griffin's RG-LRU (De et al., 2024), whose gates make x and a. `max_plus`:
    h <- max(a + h, x), the stabilizer of xLSTM's mLSTM (Beck et al., 2024).
    """
    state = np.zeros_like(x[0])
    h = np.empty_like(x)
    for t in range(len(x)):
        h[t] = state = np.maximum(a[t] + state, x[t]) if max_plus else a[t] * state + x[t]
    return h
