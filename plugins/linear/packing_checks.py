"""What the packers of all targets refuse."""

import numpy as np

from ...errors import BuildError
from ...quantization.quantized import QuantizedWeight
from ...quantization.scheme import WeightScheme


def check_sizes(n: int, k: int) -> None:
    """Raises BuildError unless a weight [n, k] has elements."""
    if n < 1 or k < 1:
        raise BuildError(f"a linear layer of {n} outputs and {k} inputs cannot be packed; both must be positive")


def check_destination(out: np.ndarray, nbytes: int, *, gated: bool, has_up_rows: bool) -> None:
    """Raises ValueError for memory that is not uint8 [nbytes], and for one weight too many or too few."""
    if out.dtype != np.uint8 or out.shape != (nbytes,) or not out.flags.c_contiguous:
        raise ValueError(f"out must be contiguous uint8 [{nbytes}], not {out.dtype} {list(out.shape)}")
    if gated != has_up_rows:
        raise ValueError("a gated layout takes two weights, and no other layout does")


def check_rows(values: np.ndarray | QuantizedWeight, scheme: WeightScheme) -> None:
    """Raises ValueError for rows that are not as the scheme has them."""
    if isinstance(values, QuantizedWeight) != scheme.type.is_scaled:
        raise ValueError(f"{scheme} takes {'quantized' if scheme.type.is_scaled else 'float32'} rows")
    if isinstance(values, QuantizedWeight) and (values.zero is None) != scheme.symmetric:
        raise ValueError(f"{scheme} takes {'no' if scheme.symmetric else 'also'} zeros")
