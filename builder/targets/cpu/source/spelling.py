"""How types, sizes and numbers are written in C++."""

import numpy as np

from ....lowering.dims import Dim, Symbol
from ....lowering.expressions import Scalar
from ....lowering.views import DType

TYPES = {DType.F32: "float", DType.I32: "int32_t", DType.BOOL: "uint8_t"}
_LIMITS = {Symbol.TOKENS: "kLimits.max_num_tokens", Symbol.ROWS: "kLimits.max_logits_rows"}


def size(dim: Dim) -> str:
    """The size in the step that runs: a number, or a multiple of its variables T and R."""
    return _times(dim, dim.symbol.value)


def largest(dim: Dim) -> str:
    """The size at its largest, which the engine's limits give."""
    return _times(dim, _LIMITS.get(dim.symbol, ""))


def _times(dim: Dim, symbol: str) -> str:
    if dim.is_static:
        return str(dim.count)
    return symbol if dim.count == 1 else f"{dim.count} * {symbol}"


def literal(scalar: Scalar) -> str:
    """The number as C++ reads it back exactly."""
    if scalar.dtype is DType.BOOL:
        return "1" if scalar.value else "0"
    if scalar.dtype is DType.I32:
        return str(int(scalar.value)) if scalar.value != -(2**31) else "INT32_MIN"
    return float_literal(float(scalar.value))


def float_literal(value: float) -> str:
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = str(np.float32(value))
    if not any(mark in text for mark in ".e"):
        text += ".0"
    return text + "f" if value >= 0 else f"({text}f)"
