"""The activation functions that Linear and GatedMLP can apply, their NumPy definitions and their C++ names."""

import math
from enum import StrEnum

import numpy as np

_erf = np.vectorize(math.erf, otypes=[np.float64])


class Activation(StrEnum):
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

    @property
    def cpp_type(self) -> str:
        """The C++ functor: "es::QuickGelu"."""
        return "es::" + "".join(word.capitalize() for word in (self.value or "identity").split("_"))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The function of x, in x's precision."""
        match self:
            case Activation.NONE:
                return x
            case Activation.GELU:
                return 0.5 * x * (1 + _erf(x / math.sqrt(2)).astype(x.dtype))
            case Activation.GELU_TANH:
                return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
            case Activation.SILU:
                return x * _sigmoid(x)
            case Activation.RELU:
                return np.maximum(x, 0)
            case Activation.RELU2:
                return np.maximum(x, 0) ** 2
            case Activation.QUICK_GELU:
                return x * _sigmoid(1.702 * x)
            case Activation.TANH:
                return np.tanh(x)
            case Activation.SIGMOID:
                return _sigmoid(x)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))
