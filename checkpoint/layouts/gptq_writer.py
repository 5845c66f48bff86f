"""Writes GPTQ's layout; `gptq.py` reads it and tells of the format."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import BuildError
from ...quantization.quantized import QuantizedWeight
from ...quantization.scheme import ActivationScheme, LinearScheme
from . import bits
from .gptq import ADDED
from .layout_writer import LayoutWriter, Packed, exactly_fp16


class GptqWriter(LayoutWriter):
    """int4, with zero points or without, and int8, by group or channel. Raises BuildError for another scheme.

    Symmetric weights take the first convention for zeros, which every loader knows. It has no room for a zero of 0
    (stored as -1), so that weights with zero points take the second, "gptq_v2".
    """

    format = "GPTQ"

    def __init__(self, scheme: LinearScheme) -> None:
        super().__init__(scheme)
        if not scheme.weight.type.is_integer or scheme.activation is not ActivationScheme.NONE:
            raise BuildError(
                f"the GPTQ format holds int4 and int8 weights without a scheme for activations, not {scheme}; use "
                "--format compressed-tensors"
            )
        self.bits = scheme.weight.type.bits
        self.form = "gptq" if scheme.weight.symmetric else "gptq_v2"

    def _multiple(self, what: str) -> int:
        return 32 // self.bits

    def pack(self, weight: QuantizedWeight, input_scale: float | None = None) -> Packed:
        k = weight.q.shape[1]
        zero = np.zeros_like(weight.scale) if weight.zero is None else weight.zero
        zeros = bits.counted(self._in_groups(zero, k).T, self.bits) - np.uint8(ADDED[self.form])
        return {
            "qweight": np.ascontiguousarray(bits.pack(bits.counted(weight.q, self.bits), self.bits).T),
            "qzeros": bits.pack(zeros, self.bits),
            "scales": exactly_fp16(np.ascontiguousarray(self._in_groups(weight.scale, k).T)),
            "g_idx": (np.arange(k) // (self.group_size or k)).astype(np.int32),
        }

    def config(self, ignore: Sequence[str] = ()) -> dict[str, Any]:
        return {
            "quant_method": "gptq",
            "checkpoint_format": self.form,
            "bits": self.bits,
            "group_size": self.group_size or -1,
            "sym": self.scheme.weight.symmetric,
            "desc_act": False,
            "lm_head": False,
            "dynamic": {f"-:^{re.escape(name)}$": {} for name in ignore},
            "pack_dtype": "int32",
        }
