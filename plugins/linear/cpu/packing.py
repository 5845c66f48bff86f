"""Packing the weights of linear layers for the CPU kernels: streaming, a few panels at a time."""

from dataclasses import dataclass

import numpy as np

from ....builder.lowering.program import LinearWeight, Rows
from ....errors import BuildError
from ....quantization.quantized import QuantizedWeight
from ....quantization.scheme import ActivationScheme, WeightScheme, WeightType
from ...cpu.isa import Isa
from ..packing_checks import check_destination, check_rows, check_sizes
from . import panels
from .panels import PANEL
from .tactics import tactics

_STEP_BYTES = 4 << 20  # float32 bytes of weight that are packed at once: what stays in cache
FP8_GROUP_STEP = 32
"""Groups of FP8 weights are multiples of this."""
_CHANNEL_GROUP = 128  # groups of the activations of a weight with one scale per channel


@dataclass(frozen=True)
class LinearLayout:
    """How a weight [n, k] of a Linear, or the two of a GatedMLP (`gated`), lies in memory: one 64-byte aligned blob.

    `activation` is what the kernels do to inputs; it changes nothing in memory.
    """

    n: int
    k: int
    scheme: WeightScheme
    isa: Isa
    gated: bool = False
    activation: ActivationScheme = ActivationScheme.NONE

    def __post_init__(self) -> None:
        if self.scheme.type is WeightType.FP8 and self.scheme.group_size % FP8_GROUP_STEP:
            raise BuildError(
                f"FP8 weights have scales for whole channels or for groups of a multiple of {FP8_GROUP_STEP} inputs, "
                f"not for groups of {self.scheme.group_size}; choose another group size"
            )
        check_sizes(self.n, self.k)

    @property
    def cpp_type(self) -> str:
        """The weight type that the kernels are instantiated with."""
        match self.scheme.type:
            case WeightType.FP32:
                return "es::Fp32Weight"
            case WeightType.BF16:
                return "es::Bf16Weight"
            case WeightType.FP8:
                return f"es::Fp8Weight<{self.scheme.group_size}{self._inputs}>"
            case WeightType.INT8:
                return f"es::Int8Weight<{self.scheme.group_size}{self._inputs}>"
            case WeightType.INT4:
                zeros = "" if self.scheme.symmetric else ", true"
                return f"es::Int4Weight<{self.scheme.group_size}{zeros}>"

    @property
    def _inputs(self) -> str:
        """A template argument, but where it is the default."""
        return "" if self.activation is ActivationScheme.NONE else f", es::Inputs::k{self.activation.capitalize()}"

    @property
    def nbytes(self) -> int:
        return self._panels * self.panel_bytes * (2 if self.gated else 1)

    @property
    def panel_bytes(self) -> int:
        match self.scheme.type:
            case WeightType.FP32:
                return self.k * PANEL * 4
            case WeightType.BF16:
                padding = panels.bf16_padding(self.isa)
                return -(-self.k // padding) * padding * PANEL * 2
            case WeightType.FP8:
                return (panels.fp8_padded(self.k) + 4 * self.scheme.groups(self.k)) * PANEL
            case _:
                scales = 4 * PANEL if self._per_channel else self._scale_bytes * self._groups
                return self._padded_k * PANEL * self.scheme.type.bits // 8 + scales

    def report(self) -> dict[str, str]:
        """The kernel variant for each range of rows in a step; all variants give the same bits."""
        return tactics(self.scheme.type, self.isa, self.activation)

    def pack(self, rows: Rows, out: np.ndarray, up_rows: Rows | None = None) -> None:
        """Writes the weight into `out`, uint8 [nbytes], with a few tens of megabytes of working memory.

        `rows(first, last)` gives those rows of the weight [n, k]: in float32 or, for scaled schemes, quantized, with
        zeros where the scheme is asymmetric; FP8 without NaN. A gated layout takes the gate from `rows` and the other
        projection from `up_rows`.
        """
        check_destination(out, self.nbytes, gated=self.gated, has_up_rows=up_rows is not None)
        sources = [rows] if up_rows is None else [rows, up_rows]
        blob = out.reshape(self._panels, len(sources), self.panel_bytes)
        step = max(1, _STEP_BYTES // (PANEL * self.k * 4))
        for first in range(0, self._panels, step):
            last = min(first + step, self._panels)
            for i, source in enumerate(sources):
                self._pack_panels(source(first * PANEL, min(last * PANEL, self.n)), blob[first:last, i])

    @property
    def _panels(self) -> int:
        return -(-self.n // PANEL)

    @property
    def _per_channel(self) -> bool:
        return self.scheme.group_size == 0

    @property
    def _scale_bytes(self) -> int:
        """Of a group: fp16 scales, then fp16 zeros."""
        return (2 if self.scheme.symmetric else 4) * PANEL

    @property
    def _group(self) -> int:
        return self.scheme.group_size or _CHANNEL_GROUP

    @property
    def _groups(self) -> int:
        return -(-self.k // self._group)

    @property
    def _padded_group(self) -> int:
        chunk = panels.chunk_size(self.isa, self._group)
        return -(-self._group // chunk) * chunk

    @property
    def _padded_k(self) -> int:
        chunk = panels.chunk_size(self.isa, self._group)
        before = self._groups - 1
        return before * self._padded_group + -(-(self.k - before * self._group) // chunk) * chunk

    def _pack_panels(self, values: np.ndarray | QuantizedWeight, out: np.ndarray) -> None:
        outputs = len(out) * PANEL
        scratch = np.empty(out.shape, np.uint8)
        check_rows(values, self.scheme)
        if not isinstance(values, QuantizedWeight):
            weight = _whole(np.asarray(values, np.float32), outputs)
            if self.scheme.type is WeightType.FP32:
                panels.write_fp32(weight, scratch)
            else:
                panels.write_bf16(weight, self.isa, scratch)
        elif self.scheme.type is WeightType.FP8:
            panels.write_fp8(_whole(values.q.view(np.uint8), outputs), _whole(values.scale, outputs), self.isa, scratch)
        else:
            scales = [_whole(part, outputs) for part in (values.scale, values.zero) if part is not None]
            self._write_integers(_whole(values.q, outputs), scales, scratch)
        out[...] = scratch

    def _write_integers(self, q: np.ndarray, scales: list[np.ndarray], out: np.ndarray) -> None:
        """q: int8 [32 P, K]; scales and perhaps zeros: float32 [32 P, groups or 1]."""
        chunk = panels.chunk_size(self.isa, self._group)
        padded = panels.pad_groups(q, self._group, self._padded_group, self._padded_k)
        is_int4 = self.scheme.type is WeightType.INT4
        chunks = panels.int4_chunks(padded, chunk) if is_int4 else panels.int8_chunks(padded, self.isa, chunk)
        body = np.ascontiguousarray(chunks).reshape(len(out), -1).view(np.uint8)
        if self._per_channel:
            out[:, : body.shape[1]] = body
            out[:, body.shape[1] :] = scales[0].astype(np.float32).reshape(len(out), PANEL).view(np.uint8)
            return
        halves = np.stack(scales).astype(np.float16).reshape(len(scales), len(out), PANEL, -1).transpose(1, 3, 0, 2)
        ends = np.ascontiguousarray(halves).view(np.uint8).reshape(len(out), self._groups, self._scale_bytes)
        before = self._groups - 1
        group_bytes = self._padded_group * PANEL * self.scheme.type.bits // 8
        record = group_bytes + self._scale_bytes
        whole = out[:, : before * record].reshape(len(out), before, record)
        whole[:, :, :group_bytes] = body[:, : before * group_bytes].reshape(len(out), before, group_bytes)
        whole[:, :, group_bytes:] = ends[:, :before]
        out[:, before * record : -self._scale_bytes] = body[:, before * group_bytes :]
        out[:, -self._scale_bytes :] = ends[:, -1]


def _whole(values: np.ndarray, outputs: int) -> np.ndarray:
    """Adds rows of zeros up to `outputs`."""
    if len(values) == outputs:
        return np.ascontiguousarray(values)
    padded = np.zeros((outputs, values.shape[1]), values.dtype)
    padded[: len(values)] = values
    return padded


def layout_of_weight(weight: LinearWeight, isa: Isa) -> LinearLayout:
    """How a weight of a program is packed for an instruction set."""
    scheme, gated = weight.scheme, len(weight.sources) == 2
    return LinearLayout(weight.n, weight.k, scheme.weight, isa, gated=gated, activation=scheme.activation)
