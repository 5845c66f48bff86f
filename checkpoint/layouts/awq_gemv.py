"""AutoAWQ's "gemv" layout: int4 with zero points, eight inputs to a word.

Format, from AutoAWQ's WQLinear_GEMV: qweight int32 [N, K / 8] holds inputs in a row, from a word's lowest bits up; so
does qzeros [N, W] its groups; scales [N, 8 W]. W words are enough for K / G groups, and more where groups are short: a
multiple of as many as kernels take at once. The rest is zeros. A weight is scale * (q - zero).
"""

import numpy as np

from ...quantization.quantized import QuantizedWeight
from . import bits, reference
from .layout import FLOATS, INT32, Layout, Part, Tensors, groups_of
from .stored import StoredWeight, integer_weight

WIDEN = {128: 1, 64: 2, 32: 4, 16: 8}  # what W is a multiple of, by group size


class AwqGemvLayout(Layout):
    """`quant_method` "awq", version "gemv"."""

    markers = ("qweight",)

    def __init__(self, group_size: int) -> None:
        self.group_size = group_size
        self.title = f"AWQ (gemv), int4 in groups of {group_size}"

    def parts(self, module: str, n: int, k: int) -> dict[str, Part]:
        multiple = WIDEN[self.group_size]
        words = -(-(k // self.group_size) // 8)
        width = -(-words // multiple) * multiple
        return {
            "qweight": Part(INT32, ((n, -(-k // 8)),)),
            "qzeros": Part(INT32, ((n, width),)),
            "scales": Part(FLOATS, ((n, 8 * width),)),
        }

    def weight(self, module: str, n: int, k: int, tensors: Tensors) -> StoredWeight:
        groups = groups_of(k, self.group_size)
        scales = tensors["scales"][:, :groups]

        def rows(first: int, last: int) -> QuantizedWeight:
            q, zero = (bits.centred(bits.unpack(tensors[name][first:last], 4), 4) for name in ("qweight", "qzeros"))
            scale = np.asarray(scales[first:last], np.float32)
            return QuantizedWeight(q[:, :k], scale, zero[:, :groups].astype(np.float32))

        return integer_weight((n, k), 4, self.group_size, rows, symmetric=False, scales=scales)

    def reference(self, module: str, n: int, k: int, tensors: Tensors) -> np.ndarray:
        return reference.awq_gemv(tensors, (n, k), self.group_size)
