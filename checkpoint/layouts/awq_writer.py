"""Writes AutoAWQ's "gemm" layout; `awq.py` reads it and tells of the format."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import BuildError
from ...quantization.quantized import QuantizedWeight
from ...quantization.scheme import LinearScheme, WeightType
from . import bits
from .awq import ORDER
from .layout_writer import LayoutWriter, Packed, exactly_fp16


class AwqWriter(LayoutWriter):
    """int4 in groups, with zero points. Raises BuildError for another scheme."""

    format = "AWQ"

    def __init__(self, scheme: LinearScheme) -> None:
        super().__init__(scheme)
        weight = scheme.weight
        if weight.type is not WeightType.INT4 or weight.symmetric or not weight.group_size:
            raise BuildError(
                f"the AWQ format holds int4 weights in groups with zero points, not {scheme}; use --bits 4 "
                "--group-size 128 --asymmetric, or --format compressed-tensors"
            )

    def _multiple(self, what: str) -> int:
        return 8 if what == "outputs" else 1

    def pack(self, weight: QuantizedWeight, input_scale: float | None = None) -> Packed:
        if weight.zero is None:
            raise ValueError("the AWQ format has zero points for every weight")
        k = weight.q.shape[1]
        return {
            "qweight": _words(weight.q),
            "qzeros": _words(self._in_groups(weight.zero, k)),
            "scales": exactly_fp16(np.ascontiguousarray(self._in_groups(weight.scale, k).T)),
        }

    def config(self, ignore: Sequence[str] = ()) -> dict[str, Any]:
        return {
            "quant_method": "awq",
            "version": "gemm",
            "bits": 4,
            "group_size": self.group_size,
            "zero_point": True,
            "modules_to_not_convert": list(ignore),
        }


def _words(numbers: np.ndarray) -> np.ndarray:
    """Numbers [N, R] in [-8, 7] to int32 [R, N / 8]."""
    n, rows = numbers.shape
    eights = bits.counted(numbers, 4).T.reshape(rows, n // 8, 8)
    return bits.pack(eights[:, :, ORDER].reshape(rows, n), 4)
