"""FP8 weights as DeepSeek and Transformers store them, with a scale for each block or for the whole weight.

Format: weight float8_e4m3fn [N, K]; weight_scale_inv, despite its name what weights are multiplied by, [N / 128,
K / 128] for blocks of 128 x 128, or one number. With `activation_scheme` "static", activation_scale is what inputs are
divided by before they are rounded. AutoFP8 calls the two weight_scale and input_scale.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import CheckpointError
from ...quantization.quantized import QuantizedWeight
from ...quantization.scheme import ActivationScheme
from ..checkpoint import Checkpoint
from ..safetensors import DTYPES
from . import reference
from .layout import FLOATS, FP8, Layout, Part, Tensors, groups_of, unsupported
from .stored import StoredWeight, fp8_weight

_SCALES = (*FLOATS, DTYPES["F8_E8M0"])
_NAMES = ("weight_scale_inv", "activation_scale"), ("weight_scale", "input_scale")
_KNOWN = "FP8 in E4M3, with a scale for each block or tensor"


class Fp8Layout(Layout):
    """`quant_method` "fp8"."""

    markers = ("weight_scale_inv", "weight_scale")
    ignorable = (r"\.(kv|[qkv])_scale$",)  # of a quantized KV cache

    def __init__(self, checkpoint: Checkpoint, config: Mapping[str, Any]) -> None:
        form = str(config.get("fmt", "e4m3")).lower()
        if form not in ("e4m3", "float8_e4m3fn"):
            raise unsupported(checkpoint, f"FP8 in {form}", self.markers, _KNOWN)
        self.block = block_size(checkpoint, config.get("weight_block_size"))
        self.activation = _activation(checkpoint, config.get("activation_scheme"))
        self.title = f"FP8 with a scale for each {'block' if self.block else 'tensor'}"
        inverse = any(name.endswith(".weight_scale_inv") for name in checkpoint.tensors)
        self._scale, self._input = _NAMES[0 if inverse else 1]

    def parts(self, module: str, n: int, k: int) -> dict[str, Part]:
        return {
            "weight": Part(FP8, ((n, k),)),
            self._scale: Part(_SCALES, block_shapes(n, k, self.block) if self.block else ((), (1,))),
            self._input: Part(FLOATS, ((), (1,)), required=self.activation is ActivationScheme.STATIC),
        }

    def weight(self, module: str, n: int, k: int, tensors: Tensors) -> StoredWeight:
        static = self.activation is ActivationScheme.STATIC
        scale = input_scale(f"{module}.{self._input}", tensors[self._input]) if static else None
        return scaled_fp8(tensors["weight"], tensors[self._scale], self.block, self.activation, scale)

    def reference(self, module: str, n: int, k: int, tensors: Tensors) -> np.ndarray:
        return reference.fp8(tensors["weight"], tensors[self._scale], self.block)


def block_size(checkpoint: Checkpoint, value: object) -> tuple[int, int] | None:
    """A block's outputs and inputs, from a config; None where it has none."""
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2 or any(type(size) is not int or size < 1 for size in value):
        raise unsupported(checkpoint, f"FP8 in blocks of {value!r}", ("weight_scale_inv", "weight_scale"), _KNOWN)
    return value[0], value[1]


def block_shapes(n: int, k: int, block: tuple[int, int]) -> tuple[tuple[int, ...], ...]:
    return ((-(-n // block[0]), -(-k // block[1])),)


def scaled_fp8(
    weight: np.ndarray,
    scale: np.ndarray,
    block: tuple[int, int] | None,
    activation: ActivationScheme = ActivationScheme.NONE,
    input_scale: float | None = None,
) -> StoredWeight:
    """float8 [N, K] times scales: one, one for each output ([N] or [N, 1]), or one for each block."""
    n, k = weight.shape
    block = block or (1, k)
    scale = np.asarray(scale, np.float32)
    rows = np.broadcast_to(scale.reshape(-1, groups_of(k, block[1])), (-(-n // block[0]), groups_of(k, block[1])))

    def numbers(first: int, last: int) -> QuantizedWeight:
        return QuantizedWeight(weight[first:last], rows[np.arange(first, last) // block[0]])

    group_size = block[1] if block[1] < k else 0
    return fp8_weight((n, k), group_size, numbers, activation=activation, input_scale=input_scale)


def input_scale(name: str, stored: np.ndarray) -> float:
    """The one number of a tensor. Raises CheckpointError where nothing can be divided by it."""
    value = float(np.asarray(stored, np.float32).reshape(()))
    if not 0 < value < float("inf"):
        raise CheckpointError(f"{name}: a scale of inputs must be positive and finite, found {value}. It is damaged.")
    return value


def _activation(checkpoint: Checkpoint, scheme: object) -> ActivationScheme:
    if scheme not in (None, "dynamic", "static"):
        raise unsupported(checkpoint, f"FP8 with {scheme!r} activations", ("weight_scale_inv",), _KNOWN)
    return ActivationScheme(str(scheme)) if scheme else ActivationScheme.NONE
