"""Weights of linear layers that a checkpoint holds quantized: taken over bit for bit where kernels have the scheme."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ....checkpoint.layouts.stored import StoredWeight
from ....errors import BuildError
from ....quantization.quantized import QuantizedWeight
from ....quantization.scheme import WeightScheme
from ...passes import derived
from ...passes.row_spans import RowSpan, row_spans

Stored = Mapping[str, StoredWeight]  # by parameter


@dataclass(frozen=True)
class StoredRows:
    """A matrix [N, K] made of rows of stored weights, in a scheme that holds them all."""

    scheme: WeightScheme
    spans: tuple[tuple[RowSpan, StoredWeight], ...]

    def __call__(self, first: int, last: int) -> QuantizedWeight:
        """Rows [first, last). Raises BuildError for a scale that is NaN or infinite."""
        parts, offset = [], 0
        for span, weight in self.spans:
            size = span.last - span.first
            low, high = max(first - offset, 0), min(last - offset, size)
            if low < high:
                parts.append(self._part(span.parameter, weight.rows(span.first + low, span.first + high)))
            offset += size
        zeros = [part.zero for part in parts if part.zero is not None]
        return QuantizedWeight(
            np.concatenate([part.q for part in parts]),
            np.concatenate([part.scale for part in parts]),
            np.concatenate(zeros) if zeros else None,
        )

    def _part(self, name: str, part: QuantizedWeight) -> QuantizedWeight:
        if not np.isfinite(part.scale).all():
            raise BuildError(f"the scales of {name} hold NaN or infinite values; the checkpoint is damaged")
        if part.zero is None and not self.scheme.symmetric:
            return QuantizedWeight(part.q, part.scale, np.zeros_like(part.scale))
        return part


def stored_rows(sources: Sequence[ir.Value], stored: Stored) -> tuple[StoredRows, ...] | str:
    """Each of the matrices that share a packed weight as stored rows, all of one scheme; otherwise why not.

    The answer is "" where nothing of them is stored quantized.
    """
    names = [name for source in sources for name in derived.parameters_of(source)]
    quantized = [name for name in names if name in stored]
    if not quantized:
        return ""
    found = [row_spans(source) for source in sources]
    matrices = [spans for spans in found if spans is not None]
    if len(matrices) < len(found):
        return "its rows are not simply those of stored weights"
    if len(quantized) < len(names):
        return "merged with weights that are not quantized"
    schemes = [stored[name].scheme for name in names]
    known = [scheme for scheme in schemes if scheme is not None]
    if len(known) < len(schemes):
        return next(stored[name].reason for name in names if stored[name].scheme is None)
    if len({(scheme.type, scheme.group_size) for scheme in known}) > 1:
        return f"merged from weights of several schemes: {', '.join(dict.fromkeys(map(str, known)))}"
    scheme = WeightScheme(known[0].type, known[0].group_size, all(scheme.symmetric for scheme in known))
    return tuple(StoredRows(scheme, tuple((span, stored[span.parameter]) for span in spans)) for spans in matrices)
