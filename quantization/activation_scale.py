"""Static scales of a layer's inputs, from calibration."""

import numpy as np

from .scheme import WeightType
from .statistics import InputStatistics


def static_activation_scale(statistics: InputStatistics, type: WeightType) -> float:
    """The scale, exact in float32 and positive, that sends the largest input seen to 127 (int8) or 448 (FP8).

    Inputs are then x = scale * q. 1 where all inputs were 0.
    """
    if type.bits != 8:
        raise ValueError(f"activations are int8 or FP8, not {type}")
    largest = float(statistics.absmax.max(initial=0))
    return float(np.float32(largest / type.largest)) or 1.0
