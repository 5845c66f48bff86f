"""The activation functions that Linear and GatedMLP can apply, and their NumPy definitions."""

import math
from enum import StrEnum

import numpy as np

_erf = np.vectorize(math.erf, otypes=[np.float64])


class ActivationFunction(StrEnum):
    """An element-wise function; NONE leaves values as they are."""

    NONE = ""
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    SILU = "silu"
    RELU = "relu"
    RELU2 = "relu2"
    QUICK_GELU = "quick_gelu"
    TANH = "tanh"
    SIGMOID = "sigmoid"

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The function of x, in x's precision."""
        match self:
            case ActivationFunction.NONE:
                return x
            case ActivationFunction.GELU:
                return 0.5 * x * (1 + _erf(x / math.sqrt(2)).astype(x.dtype))
            case ActivationFunction.GELU_TANH:
                return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
            case ActivationFunction.SILU:
                return x * _sigmoid(x)
            case ActivationFunction.RELU:
                return np.maximum(x, 0)
            case ActivationFunction.RELU2:
                return np.maximum(x, 0) ** 2
            case ActivationFunction.QUICK_GELU:
                return x * _sigmoid(1.702 * x)
            case ActivationFunction.TANH:
                return np.tanh(x)
            case ActivationFunction.SIGMOID:
                return _sigmoid(x)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))
