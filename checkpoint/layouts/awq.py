"""AutoAWQ's "gemm" layout: int4 with zero points, eight outputs to a word.

Format, from AutoAWQ's WQLinear_GEMM: qweight int32 [K, N / 8] and qzeros int32 [K / G, N / 8] hold outputs 8 c + 0, 2,
4, 6, 1, 3, 5, 7 in word c, from its lowest bits up; scales [K / G, N]. A weight is scale * (q - zero).
"""

from collections.abc import Mapping

import numpy as np

from ...errors import CheckpointError
from ...quantization.quantized import QuantizedWeight
from ..checkpoint import Checkpoint
from . import bits, reference
from .awq_gemv import WIDEN, AwqGemvLayout
from .layout import FLOATS, INT32, Layout, Part, Tensors, groups_of, integer, unsupported
from .stored import StoredWeight, integer_weight

_KNOWN = 'AWQ of 4 bits, version "gemm" or "gemv"'
ORDER = np.array([0, 2, 4, 6, 1, 3, 5, 7])  # which of its eight outputs lies in place 0, 1, ... of a word
_PLACES = np.argsort(ORDER)


class AwqLayout(Layout):
    """`quant_method` "awq", version "gemm"."""

    markers = ("qweight",)

    def __init__(self, group_size: int, *, symmetric: bool = False) -> None:
        self._symmetric = symmetric
        self.group_size = group_size
        self.title = f"AWQ, int4 in groups of {group_size or 'K'}"

    def parts(self, module: str, n: int, k: int) -> dict[str, Part]:
        groups, words = groups_of(k, self.group_size), -(-n // 8)
        return {
            "qweight": Part(INT32, ((k, words),)),
            "qzeros": Part(INT32, ((groups, words),)),
            "scales": Part(FLOATS, ((groups, n),)),
        }

    def weight(self, module: str, n: int, k: int, tensors: Tensors) -> StoredWeight:
        def rows(first: int, last: int) -> QuantizedWeight:
            scale = np.asarray(tensors["scales"][:, first:last].T, np.float32)
            zero = _outputs(tensors["qzeros"], first, last).astype(np.float32)
            return QuantizedWeight(_outputs(tensors["qweight"], first, last), scale, zero)

        if self._symmetric and _outputs(tensors["qzeros"], 0, n).any():
            raise CheckpointError(
                f"{module}.qzeros: zero points are not all 8, but the quantization_config says zero_point: false. The "
                "checkpoint contradicts itself; use another quantization of this model."
            )
        return integer_weight((n, k), 4, self.group_size, rows, symmetric=False, scales=tensors["scales"])

    def reference(self, module: str, n: int, k: int, tensors: Tensors) -> np.ndarray:
        return reference.awq(tensors, (n, k), self.group_size)


def awq_layout(checkpoint: Checkpoint, config: Mapping[str, object]) -> Layout:
    """The layout of the version that a config states; what was left unquantized, tensors tell, not config."""
    width = integer(config, "bits" if "bits" in config else "w_bit")
    version = str(config.get("version") or config.get("format") or "gemm").lower()
    group_size = max(integer(config, "group_size" if "group_size" in config else "q_group_size"), 0)
    if width != 4 or version not in ("gemm", "gemv"):
        raise unsupported(checkpoint, f'AWQ of {width} bits, version "{version}"', AwqLayout.markers, _KNOWN)
    if version == "gemm":
        return AwqLayout(group_size, symmetric=config.get("zero_point") is False)
    if group_size not in WIDEN:
        packing = f'AWQ of 4 bits, version "gemv", in groups of {group_size or "K"}'
        raise unsupported(checkpoint, packing, AwqLayout.markers, f"groups of {', '.join(map(str, WIDEN))}")
    return AwqGemvLayout(group_size)


def _outputs(words: np.ndarray, first: int, last: int) -> np.ndarray:
    """int32 [R, N / 8] to int8 [last - first, R] in [-8, 7], of those outputs."""
    begin = first // 8
    numbers = bits.centred(bits.unpack(words[:, begin : -(-last // 8)], 4), 4)
    ordered = numbers.reshape(len(numbers), -1, 8)[:, :, _PLACES].reshape(len(numbers), -1)
    return np.ascontiguousarray(ordered[:, first - 8 * begin : last - 8 * begin].T)
