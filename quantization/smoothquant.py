"""SmoothQuant: move the outliers of a layer's inputs into its weights, so that both suit eight bits.

Xiao, Lin, Seznec, Wu, Demouth, Han, "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language
Models" (2022).
"""

from collections.abc import Sequence

import numpy as np

from .channels import largest_of_tied, normalised
from .statistics import InputStatistics


def search_scales(
    weights: Sequence[np.ndarray], statistics: InputStatistics, tied: np.ndarray | None = None, alpha: float = 0.5
) -> np.ndarray:
    """What to divide inputs by, and multiply weights' columns by: absmax(x)^alpha / absmax(w)^(1 - alpha), float32 [K].

    `weights` [N_i, K] all read the same input. `tied`, int [K] or None: channels of equal numbers get equal scales.
    Scales are positive; their smallest and largest lie evenly about 1.
    """
    of_weights = np.max([np.abs(weight).max(axis=0) for weight in weights], axis=0)
    of_inputs = largest_of_tied(statistics.absmax, tied)
    of_weights = largest_of_tied(of_weights, tied)
    return normalised(of_inputs, of_weights, alpha, 1 - alpha)
