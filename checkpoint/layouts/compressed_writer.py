"""Writes compressed-tensors; `compressed_tensors.py` reads it and tells of the format."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import BuildError
from ...quantization.quantized import QuantizedWeight
from ...quantization.scheme import ActivationScheme, KvType, LinearScheme, WeightType
from . import bits
from .layout_writer import LayoutWriter, Packed, in_fp16

_VERSION = "0.15.0"  # of compressed-tensors, the first that reads all of this


class CompressedTensorsWriter(LayoutWriter):
    """Every scheme but FP8 in groups, for which it raises BuildError.

    Integers alone are packed to words, those of layers with rounded inputs stay bytes, and so do FP8 weights: what
    loaders have kernels for. `per_tensor`: FP8 weights have one scale for all, not one for each output.
    """

    format = "compressed-tensors"

    def __init__(self, scheme: LinearScheme, kv_cache: KvType | None = None, *, per_tensor: bool = False) -> None:
        super().__init__(scheme)
        self.is_float = scheme.weight.type is WeightType.FP8
        if not scheme.weight.type.is_scaled or (self.is_float and scheme.weight.group_size):
            raise BuildError(
                f"the compressed-tensors format holds int4, int8, and FP8 weights by channel or tensor, not {scheme}"
            )
        self.bits = scheme.weight.type.bits
        self.kv_cache, self.per_tensor = kv_cache, per_tensor and self.is_float
        self.packed = not self.is_float and scheme.activation is ActivationScheme.NONE
        self.dequantize = not scheme.weight.symmetric

    def pack(self, weight: QuantizedWeight, input_scale: float | None = None) -> Packed:
        n, k = weight.q.shape
        tensors = {"weight": np.ascontiguousarray(weight.q)}
        if self.packed:
            tensors = {
                "weight_packed": bits.pack(bits.counted(weight.q, self.bits), self.bits),
                "weight_shape": np.array([n, k], np.int64),
            }
        scale = self._in_groups(weight.scale, k)
        if self.per_tensor:
            scale = _one(scale)
        tensors["weight_scale"] = scale.astype(np.float32) if self.is_float or self.dequantize else in_fp16(scale)
        if weight.zero is not None:
            zeros = bits.counted(self._in_groups(weight.zero, k).T, self.bits)
            tensors["weight_zero_point"] = np.ascontiguousarray(bits.pack(zeros, self.bits).T)
        if self.scheme.activation is ActivationScheme.STATIC:
            if input_scale is None:
                raise ValueError("static activations have a scale")
            tensors["input_scale"] = np.array([input_scale], np.float32)
        return tensors

    def config(self, ignore: Sequence[str] = ()) -> dict[str, Any]:
        form = "pack-quantized" if self.packed else "float-quantized" if self.is_float else "int-quantized"
        group = {
            "targets": ["Linear"],
            "weights": self._weights(),
            "input_activations": self._activations(),
            "output_activations": None,
            "format": form,
        }
        return {
            "quant_method": "compressed-tensors",
            "version": _VERSION,
            "format": form,
            "quantization_status": "compressed",
            "global_compression_ratio": None,
            "config_groups": {"group_0": group},
            "ignore": list(ignore),
            "kv_cache_scheme": _kv_cache(self.kv_cache),
            **({"dequantize": True} if self.dequantize else {}),
        }

    def _weights(self) -> dict[str, object]:
        strategy = "tensor" if self.per_tensor else "group" if self.group_size else "channel"
        symmetric = self.scheme.weight.symmetric
        return _arguments(self.is_float, self.bits, strategy, self.group_size or None, symmetric=symmetric)

    def _activations(self) -> dict[str, object] | None:
        match self.scheme.activation:
            case ActivationScheme.NONE:
                return None
            case ActivationScheme.DYNAMIC:
                return _arguments(self.is_float, 8, "token", dynamic=True)
            case ActivationScheme.STATIC:
                return _arguments(self.is_float, 8, "tensor")


def _kv_cache(kv_cache: KvType | None) -> dict[str, object] | None:
    if kv_cache is None:
        return None
    return _arguments(kv_cache is KvType.FP8, 8, "attn_head" if kv_cache.by_head else "tensor")


def _arguments(
    is_float: bool,
    width: int,
    strategy: str,
    group_size: int | None = None,
    *,
    symmetric: bool = True,
    dynamic: bool = False,
) -> dict[str, object]:
    return {
        "num_bits": width,
        "type": "float" if is_float else "int",
        "symmetric": symmetric,
        "strategy": strategy,
        "group_size": group_size,
        "dynamic": dynamic,
    }


def _one(scale: np.ndarray) -> np.ndarray:
    """The scale of a whole weight, [1], of scales [N, 1]. Raises ValueError where they differ."""
    if (scale != scale[:1]).any():
        raise ValueError("a weight with one scale has several")
    return scale[:1].reshape(1)
