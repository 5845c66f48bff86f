"""compressed-tensors: integers in words ("pack-quantized") or bytes ("int-quantized"), and FP8 ("float-quantized").

Format: weight_packed int32 [N, K bits / 32] holds inputs in a row, from a word's lowest bits up, each plus
2^(bits - 1); weight_zero_point int32 [N bits / 32, G] holds outputs the same way, or is int8 [N, G]. Unpacked weights
are int8 or float8_e4m3fn [N, K]. weight_scale is [N, G], [N, 1] or one number; a weight is scale * (q - zero). Where
activations are static, input_scale is what inputs are divided by before they are rounded.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import CheckpointError
from ...quantization.quantized import QuantizedWeight
from ...quantization.scheme import ActivationScheme
from ..checkpoint import Checkpoint
from . import bits, reference
from .compressed_groups import ConfigGroup, Strategy, read_groups
from .fp8 import block_shapes, input_scale, scaled_fp8
from .gptq import group_of
from .kv_cache import read_kv_scheme
from .layout import FLOATS, FP8, INDICES, INT8, INT32, Layout, Part, Tensors, groups_of
from .stored import StoredWeight, integer_weight


class CompressedTensorsLayout(Layout):
    """`quant_method` "compressed-tensors"."""

    markers = ("weight_packed", "weight_scale")
    ignorable = (r"\.[qkv]_(scale|zero_point)$", r"\.output_(scale|zero_point)$")  # of a quantized KV cache

    def __init__(self, checkpoint: Checkpoint, config: Mapping[str, Any]) -> None:
        self.groups = read_groups(checkpoint, config)
        self.kv_cache = read_kv_scheme(checkpoint, config)
        self.title = "compressed-tensors, " + " and ".join(dict.fromkeys(map(str, self.groups)))

    def parts(self, module: str, n: int, k: int) -> dict[str, Part]:
        group = self._group(module)
        parts = {
            "weight_scale": Part(FLOATS, _scale_shapes(group, n, k)),
            "input_scale": Part(FLOATS, ((), (1,), (1, 1)), required=group.activation is ActivationScheme.STATIC),
            "input_zero_point": Part(required=False),
        }
        if group.is_float:
            return {"weight": Part(FP8, ((n, k),)), **parts}
        each, count = 32 // group.bits, groups_of(k, group.group_size)
        parts["weight_g_idx"] = Part(INDICES, ((k,),), required=False)
        if not group.packed:
            zero = Part(INT8, _scale_shapes(group, n, k), required=not group.symmetric)
            return {"weight": Part(INT8, ((n, k),)), "weight_zero_point": zero, **parts}
        zero_shapes = ((-(-n // each), count), (n, count))
        return {
            "weight_packed": Part(INT32, ((n, -(-k // each)),)),
            "weight_shape": Part(INDICES, ((2,),), required=False),
            "weight_zero_point": Part(INT32 + INT8, zero_shapes, required=not group.symmetric),
            **parts,
        }

    def weight(self, module: str, n: int, k: int, tensors: Tensors) -> StoredWeight:
        group = self._group(module)
        static = group.activation is ActivationScheme.STATIC
        _see_that_tensors_agree(module, (n, k), group, tensors)
        scale = input_scale(f"{module}.input_scale", tensors["input_scale"]) if static else None
        if group.is_float:
            return scaled_fp8(tensors["weight"], tensors["weight_scale"], group.block, group.activation, scale)
        zeros = None if group.symmetric else _zeros(tensors["weight_zero_point"], group, n)
        symmetric = zeros is None or (not zeros.any() and group.bits == 8)
        scales = np.broadcast_to(_column(tensors["weight_scale"]), (n, groups_of(k, group.group_size)))

        def rows(first: int, last: int) -> QuantizedWeight:
            if group.packed:
                q = bits.centred(bits.unpack(tensors["weight_packed"][first:last], group.bits)[:, :k], group.bits)
            else:
                q = tensors["weight"][first:last]
            zero = None if zeros is None or symmetric else zeros[first:last].astype(np.float32)
            return QuantizedWeight(q, np.asarray(scales[first:last], np.float32), zero)

        indices = tensors.get("weight_g_idx")
        return integer_weight(
            (n, k),
            group.bits,
            group.group_size,
            rows,
            symmetric=symmetric,
            scales=tensors["weight_scale"],
            group_of=group_of(f"{module}.weight_g_idx", indices, k, group.group_size),
            activation=group.activation,
            input_scale=scale,
        )

    def reference(self, module: str, n: int, k: int, tensors: Tensors) -> np.ndarray:
        group = self._group(module)
        if group.is_float:
            return reference.fp8(tensors["weight"], tensors["weight_scale"], group.block)
        return reference.packed(tensors, (n, k), group.bits, group.group_size, symmetric=group.symmetric)

    def _group(self, module: str) -> ConfigGroup:
        return next((group for group in self.groups if group.names(module)), self.groups[-1])


def _see_that_tensors_agree(module: str, shape: tuple[int, int], group: ConfigGroup, tensors: Tensors) -> None:
    """Raise CheckpointError for a shape or zero points that are stored otherwise than config says."""
    if "weight_shape" in tensors and tuple(map(int, tensors["weight_shape"])) != shape:
        found = tensors["weight_shape"].tolist()
        wrong = f"{module}.weight_shape: says {found}, but config.json describes a weight of {list(shape)}"
    elif (
        group.symmetric
        and "weight_zero_point" in tensors
        and _zeros(tensors["weight_zero_point"], group, shape[0]).any()
    ):
        wrong = f"{module}.weight_zero_point: zero points that are not 0, but the quantization_config says symmetric"
    else:
        return
    raise CheckpointError(f"{wrong}. The checkpoint contradicts itself; use another quantization of this model.")


def _scale_shapes(group: ConfigGroup, n: int, k: int) -> tuple[tuple[int, ...], ...]:
    match group.strategy:
        case Strategy.TENSOR:
            return (1,), (), (1, 1)
        case Strategy.CHANNEL:
            return (n, 1), (n,)
        case Strategy.GROUP:
            return ((n, groups_of(k, group.group_size)),)
        case Strategy.BLOCK:
            return block_shapes(n, k, group.block or (128, 128))


def _column(values: np.ndarray) -> np.ndarray:
    """One number, or numbers of outputs, as [N or 1, G]."""
    return values if values.ndim == 2 else values.reshape(-1, 1)


def _zeros(stored: np.ndarray, group: ConfigGroup, n: int) -> np.ndarray:
    """int8 [N, G], in the range of the integers."""
    if stored.dtype == np.int8:
        return np.broadcast_to(_column(stored), (n, _column(stored).shape[1]))
    return bits.centred(bits.unpack(stored.T, group.bits)[:, :n], group.bits).T
