"""Packing the weights of linear layers for the CUDA kernels; tile.py says how they lie, and reads them."""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ....builder.lowering.program import LinearWeight, Rows
from ....errors import BuildError
from ....quantization.quantized import QuantizedWeight
from ....quantization.scheme import ActivationScheme, WeightScheme, WeightType
from ..packing_checks import check_destination, check_rows, check_sizes

PANEL = 64
"""Outputs whose elements lie together."""
CHANNEL_GROUP = 128
"""Inputs that share a scale where int8 inputs have scales of their own and the weight has one an output."""
_ALIGNMENT = 64
_STEP_BYTES = 4 << 20  # of float32 weight that are packed at once


@dataclass(frozen=True)
class LinearLayout:
    """How a weight [n, k] of a Linear, or the two of a GatedMLP (`gated`), lies in memory.

    Both matrices' elements, then both's scales, then both's zeros, each 64-byte aligned. Raises BuildError for groups
    that the kernels cannot take.
    """

    n: int
    k: int
    scheme: WeightScheme
    activation: ActivationScheme = ActivationScheme.NONE
    gated: bool = False

    def __post_init__(self) -> None:
        group = self.scheme.group_size
        if self.scheme.type.is_scaled and group % self._least_step:
            raise BuildError(
                f"{self.scheme} weights have scales for whole channels or for groups of a multiple of "
                f"{self._least_step} inputs on this target, not for groups of {group}; choose another group size"
            )
        check_sizes(self.n, self.k)

    @property
    def is_quantized_product(self) -> bool:
        """Whether inputs are quantized, too."""
        return self.activation is not ActivationScheme.NONE

    @property
    def step(self) -> int:
        """Inputs of one matrix product: a power of two that the group is a multiple of."""
        if not self.scheme.type.is_scaled:
            return 64 if self.scheme.type is WeightType.BF16 else 32
        most = 128 if self.is_quantized_product else 64
        group = self.scheme.group_size
        return min(most, group & -group) if group else most

    @property
    def matrices(self) -> int:
        return 2 if self.gated else 1

    @property
    def element(self) -> str:
        """What the kernels' pointer to the elements points to."""
        types = {WeightType.FP32: "*fp32", WeightType.BF16: "*bf16", WeightType.INT8: "*i8"}
        return types.get(self.scheme.type, "*u8")

    @property
    def scale_element(self) -> str:
        """The same of scales and zeros."""
        return "*fp16" if self._has_half_scales else "*fp32"

    def values_offset(self, matrix: int) -> int:
        """Where the elements of a matrix begin, in bytes."""
        return matrix * _aligned(self._values_bytes)

    def scales_offset(self, matrix: int) -> int:
        """Where the scales of a matrix begin."""
        return self.values_offset(self.matrices) + matrix * _aligned(self._scales_bytes)

    def zeros_offset(self, matrix: int) -> int:
        """Where the zeros of a matrix begin."""
        return self.scales_offset(self.matrices) + matrix * _aligned(self._scales_bytes)

    @property
    def nbytes(self) -> int:
        return self.scales_offset(self.matrices) if self.scheme.symmetric else self.zeros_offset(self.matrices)

    def pack(self, rows: Rows, out: np.ndarray, up_rows: Rows | None = None) -> None:
        """Writes the weight into `out`, uint8 [nbytes], with a few tens of megabytes of working memory.

        `rows(first, last)` gives those rows of the weight [n, k]: in float32 or, for scaled schemes, quantized. A gated
        layout takes the gate from `rows` and the other projection from `up_rows`.
        """
        check_destination(out, self.nbytes, gated=self.gated, has_up_rows=up_rows is not None)
        step = max(1, _STEP_BYTES // (PANEL * self.k * 4)) * PANEL
        for matrix, source in enumerate([rows] if up_rows is None else [rows, up_rows]):
            for first in range(0, self.n, step):
                values = source(first, min(first + step, self.n))
                check_rows(values, self.scheme)
                if isinstance(values, QuantizedWeight):
                    self._pack_scaled(values, first, matrix, out)
                else:
                    self._pack_floats(values, first, matrix, out)

    @property
    def _least_step(self) -> int:
        """The least multiple that a group has to be: of 8-bit products, 32 inputs."""
        return 32 if self.is_quantized_product else 16

    @property
    def _has_half_scales(self) -> bool:
        """Scales and zeros of groups of integers are exact in fp16."""
        return self.scheme.type.is_integer and self.scheme.group_size > 0

    @property
    def _panels(self) -> int:
        return -(-self.n // PANEL)

    @property
    def _tile(self) -> int:
        """Inputs of a tile, whose rows are `step` bytes."""
        return self.step * (2 if self.scheme.type is WeightType.INT4 else 1)

    @property
    def _values_bytes(self) -> int:
        if not self.scheme.type.is_scaled:
            return self.n * self.k * self.scheme.type.bits // 8
        return self._panels * -(-self.k // self._tile) * PANEL * self.step

    @property
    def _scales_bytes(self) -> int:
        if not self.scheme.type.is_scaled:
            return 0
        return self._panels * self.scheme.groups(self.k) * PANEL * (2 if self._has_half_scales else 4)

    def _pack_floats(self, values: np.ndarray, first: int, matrix: int, out: np.ndarray) -> None:
        dtype = np.float32 if self.scheme.type is WeightType.FP32 else ml_dtypes.bfloat16
        data = np.ascontiguousarray(values.astype(dtype)).reshape(-1).view(np.uint8)
        at = self.values_offset(matrix) + first * self.k * np.dtype(dtype).itemsize
        out[at : at + data.size] = data

    def _pack_scaled(self, values: QuantizedWeight, first: int, matrix: int, out: np.ndarray) -> None:
        q = _padded(values.q.view(np.uint8), self._tile)
        if self.scheme.type is WeightType.INT4:
            # Padding is 0 in steps, not 0 in memory; inputs there are zeros, so that it does not matter.
            halves = ((q + 8) & 0xF).reshape(len(q), -1, 2, self.step)
            q = (halves[:, :, 0] | halves[:, :, 1] << 4).reshape(len(q), -1)
        _write(_in_panels(q, self.step), first, self._panels, out, self.values_offset(matrix), self._values_bytes)
        parts = [(values.scale, self.scales_offset(matrix)), (values.zero, self.zeros_offset(matrix))]
        for part, offset in parts:
            if part is not None:
                data = part.astype(np.float16 if self._has_half_scales else np.float32)
                panels = _in_panels(_padded(data, 1), 1)
                _write(panels, first, self._panels, out, offset, self._scales_bytes)


def _padded(values: np.ndarray, columns: int) -> np.ndarray:
    """Adds rows of zeros up to whole panels, and columns of zeros up to a multiple of `columns`."""
    rows, width = values.shape
    return np.pad(values, ((0, -rows % PANEL), (0, -width % columns)))


def _in_panels(values: np.ndarray, step: int) -> np.ndarray:
    """[P PANEL, C step] to [P, C, PANEL, step]."""
    panels = values.reshape(-1, PANEL, values.shape[1] // step, step)
    return np.ascontiguousarray(panels.transpose(0, 2, 1, 3))


def _write(panels: np.ndarray, first: int, count: int, out: np.ndarray, offset: int, nbytes: int) -> None:
    """Writes the panels from row `first` on into the part of `out` that holds `count` panels."""
    data: Any = panels.reshape(-1).view(np.uint8)
    at = offset + first // PANEL * (nbytes // count)
    out[at : at + data.size] = data


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def layout_of_weight(weight: LinearWeight) -> LinearLayout:
    """How a weight of a program is packed."""
    scheme = weight.scheme
    return LinearLayout(weight.n, weight.k, scheme.weight, scheme.activation, gated=len(weight.sources) == 2)
