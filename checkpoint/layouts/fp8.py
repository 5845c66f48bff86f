"""FP8 weights as DeepSeek and Transformers store them, with a scale for each block or for the whole weight.

Format: weight float8_e4m3fn [N, K]; weight_scale_inv, despite its name what weights are multiplied by, [N / 128,
K / 128] for blocks of 128 x 128, or one number. The cpu target has no FP8 kernels: such weights are dequantized when an
engine is built.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..checkpoint import Checkpoint
from ..safetensors import DTYPES
from .layout import FLOATS, FP8, Layout, Part, Tensors, unsupported
from .stored import StoredWeight, float_weight

REASON = "FP8 weights, for which the cpu target has no kernels"
_SCALES = (*FLOATS, DTYPES["F8_E8M0"])
_KNOWN = "FP8 in E4M3, with a scale for each block or tensor"


class Fp8Layout(Layout):
    """`quant_method` "fp8"."""

    markers = ("weight_scale_inv",)

    def __init__(self, checkpoint: Checkpoint, config: Mapping[str, Any]) -> None:
        form = str(config.get("fmt", "e4m3")).lower()
        if form not in ("e4m3", "float8_e4m3fn"):
            raise unsupported(checkpoint, f"FP8 in {form}", self.markers, _KNOWN)
        self.block = block_size(checkpoint, config.get("weight_block_size"))
        self.title = f"FP8 with a scale for each {'block' if self.block else 'tensor'}"

    def parts(self, module: str, n: int, k: int) -> dict[str, Part]:
        return {
            "weight": Part(FP8, ((n, k),)),
            "weight_scale_inv": Part(_SCALES, block_shapes(n, k, self.block) if self.block else ((), (1,))),
            "activation_scale": Part(required=False),
        }

    def weight(self, module: str, n: int, k: int, tensors: Tensors) -> StoredWeight:
        return fp8_weight(tensors["weight"], tensors["weight_scale_inv"], self.block)


def block_size(checkpoint: Checkpoint, value: object) -> tuple[int, int] | None:
    """A block's outputs and inputs, from a config; None where it has none."""
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2 or any(type(size) is not int or size < 1 for size in value):
        raise unsupported(checkpoint, f"FP8 in blocks of {value!r}", ("weight_scale_inv", "weight_scale"), _KNOWN)
    return value[0], value[1]


def block_shapes(n: int, k: int, block: tuple[int, int]) -> tuple[tuple[int, ...], ...]:
    return ((-(-n // block[0]), -(-k // block[1])),)


def fp8_weight(weight: np.ndarray, scale: np.ndarray, block: tuple[int, int] | None) -> StoredWeight:
    """float8 [N, K] times scales: one, one for each output ([N] or [N, 1]), or one for each block."""
    n, k = weight.shape
    scale = np.asarray(scale, np.float32)
    if block is None:
        scale = np.broadcast_to(scale.reshape(-1, 1), (n, 1))

    def values(first: int, last: int) -> np.ndarray:
        part = weight[first:last].astype(np.float32)
        if block is None:
            return part * scale[first:last]
        rows = np.arange(first, last) // block[0]
        return part * np.repeat(scale[rows], block[1], axis=1)[:, :k]

    return float_weight((n, k), values, REASON)
