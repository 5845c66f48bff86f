"""The tensors of one quantized module."""

from collections.abc import Mapping

import numpy as np

Tensors = Mapping[str, np.ndarray]
"""By suffix ("qweight"); those a module lacks are absent."""
