"""Weights of linear layers that a checkpoint holds quantized: taken over bit for bit where kernels have the scheme."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ...checkpoint.layouts.stored import StoredWeight
from ...errors import BuildError
from ...quantization.quantized import QuantizedWeight
from ...quantization.scheme import ActivationScheme, LinearScheme, WeightScheme, WeightType
from ..passes import derived
from ..passes.row_spans import RowSpan, row_spans

Stored = Mapping[str, StoredWeight]  # by parameter


@dataclass(frozen=True)
class StoredRows:
    """A matrix [N, K] made of rows of stored weights, in a scheme that holds them all."""

    scheme: LinearScheme
    spans: tuple[tuple[RowSpan, StoredWeight], ...]
    input_scale: float | None = None

    def __call__(self, first: int, last: int) -> QuantizedWeight:
        """Rows [first, last). Raises BuildError for a scale that is NaN or infinite, and for FP8 that is NaN."""
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
        if self.scheme.weight.type is WeightType.FP8 and np.any(part.q.view(np.uint8) & 0x7F == 0x7F):
            raise BuildError(f"the weight {name} holds FP8 numbers that are NaN; the checkpoint is damaged")
        if part.zero is None and not self.scheme.weight.symmetric:
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
    weights = [stored[name] for name in names]
    if reason := next((weight.reason for weight in weights if weight.scheme is None), ""):
        return reason
    scheme = _common_scheme(weights)
    if isinstance(scheme, str):
        return scheme
    scales = {weight.input_scale for weight in weights} if scheme.activation is ActivationScheme.STATIC else {None}
    if len(scales) > 1:
        return f"merged weights have different scales of their one input: {', '.join(sorted(map(str, scales)))}"
    (input_scale,) = scales
    return tuple(
        StoredRows(scheme, tuple((span, stored[span.parameter]) for span in spans), input_scale) for spans in matrices
    )


def _common_scheme(weights: Sequence[StoredWeight]) -> LinearScheme | str:
    """The scheme that holds all of the weights, or why there is none; a symmetric one may be given zeros of 0."""
    schemes = [weight.scheme for weight in weights if weight.scheme is not None]
    first, activation = schemes[0], weights[0].activation
    same = {(scheme.type, scheme.group_size) for scheme in schemes}
    if len(same) > 1 or any(weight.activation is not activation for weight in weights):
        names = [str(LinearScheme(scheme, weight.activation)) for scheme, weight in zip(schemes, weights, strict=True)]
        return f"merged from weights of several schemes: {', '.join(dict.fromkeys(names))}"
    symmetric = all(scheme.symmetric for scheme in schemes)
    return LinearScheme(WeightScheme(first.type, first.group_size, symmetric), activation)
