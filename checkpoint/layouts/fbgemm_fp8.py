"""FP8 weights with a scale for each output, as Transformers stores them for FBGEMM's kernels.

Format: weight float8_e4m3fn [N, K] and weight_scale [N, 1]. Inputs are rounded token by token; the upper bound of their
scales (input_scale_ub, `activation_scale_ub`) guards those kernels against outliers, and is not needed here.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...quantization.scheme import ActivationScheme
from ..checkpoint import Checkpoint
from . import reference
from .fp8 import scaled_fp8
from .layout import FLOATS, FP8, Layout, Part, Tensors
from .stored import StoredWeight


class FbgemmFp8Layout(Layout):
    """`quant_method` "fbgemm_fp8"."""

    title = "FP8 with a scale for each output (FBGEMM)"
    markers = ("weight_scale",)

    def __init__(self, checkpoint: Checkpoint, config: Mapping[str, Any]) -> None:
        pass  # whatever it says, weights are stored alike

    def parts(self, module: str, n: int, k: int) -> dict[str, Part]:
        return {
            "weight": Part(FP8, ((n, k),)),
            "weight_scale": Part(FLOATS, ((n, 1), (n,))),
            "input_scale_ub": Part(required=False),
        }

    def weight(self, module: str, n: int, k: int, tensors: Tensors) -> StoredWeight:
        return scaled_fp8(tensors["weight"], tensors["weight_scale"], None, ActivationScheme.DYNAMIC)

    def reference(self, module: str, n: int, k: int, tensors: Tensors) -> np.ndarray:
        return reference.fp8(tensors["weight"], tensors["weight_scale"], None)
