"""A weight as a quantizer stored it: its integers or FP8 where kernels can hold them exactly, and always its values."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...quantization.quantized import QuantizedWeight
from ...quantization.scheme import ActivationScheme, WeightScheme, WeightType

Integers = Callable[[int, int], QuantizedWeight]
Values = Callable[[int, int], np.ndarray]

_FP8_GROUP_STEP = 32  # of kernels
_CHANNEL_GROUP = 128  # int4 kernels have zero points for groups alone: a channel becomes groups that are alike


@dataclass(frozen=True)
class StoredWeight:
    """A weight [N, K] of which rows are read and unpacked on demand.

    `scheme` is how kernels hold it, bit for bit, and None where no kernel can; `reason` then tells why. `activation` is
    what the checkpoint says of the layer's inputs x; STATIC ones are `input_scale` times what they are rounded to.
    Indexing reads float32 values, as of an array: weight[rows, columns], two slices of step 1. `reference` computes all
    values, float32 [N, K], by other means than are used here.
    """

    shape: tuple[int, int]
    scheme: WeightScheme | None
    reason: str
    _integers: Integers
    _values: Values
    activation: ActivationScheme = ActivationScheme.NONE
    input_scale: float | None = None
    reference: Callable[[], np.ndarray] | None = None

    def rows(self, first: int, last: int) -> QuantizedWeight:
        """Rows [first, last) as `scheme` has them. Raises ValueError where that is None."""
        if self.scheme is None:
            raise ValueError(f"only values can be had of this weight: {self.reason}")
        return self._integers(first, last)

    def dequantize(self, first: int = 0, last: int | None = None) -> np.ndarray:
        """The values of rows [first, last), float32 [last - first, K]."""
        return self._values(first, self.shape[0] if last is None else last)

    def __getitem__(self, box: tuple[slice, ...]) -> np.ndarray:
        first, last, _ = box[0].indices(self.shape[0])
        return self.dequantize(first, last)[:, box[1]]


def fp8_weight(
    shape: tuple[int, int],
    group_size: int,
    numbers: Integers,
    *,
    activation: ActivationScheme = ActivationScheme.NONE,
    input_scale: float | None = None,
) -> StoredWeight:
    """A weight of FP8 E4M3; `numbers` gives rows of float8_e4m3fn with a float32 scale for each group.

    Group size 0 is the whole of K.
    """

    def values(first: int, last: int) -> np.ndarray:
        return numbers(first, last).dequantize(group_size)

    if group_size % _FP8_GROUP_STEP:
        reason = f"FP8 in groups of {group_size} inputs, which are not a multiple of {_FP8_GROUP_STEP}"
        return StoredWeight(shape, None, reason, _no_integers, values)
    return StoredWeight(shape, WeightScheme(WeightType.FP8, group_size), "", numbers, values, activation, input_scale)


def integer_weight(
    shape: tuple[int, int],
    bits: int,
    group_size: int,
    integers: Integers,
    *,
    symmetric: bool,
    scales: np.ndarray,
    group_of: np.ndarray | None = None,
    activation: ActivationScheme = ActivationScheme.NONE,
    input_scale: float | None = None,
) -> StoredWeight:
    """A weight of 4-bit or 8-bit integers; `integers` gives rows with a scale and a zero for each group.

    Group size 0 is the whole of K. `scales`: all of them, in any shape, to see whether fp16 holds them. `group_of`:
    int [K], the group of each input, where groups are not runs of `group_size` inputs.
    """

    def values(first: int, last: int) -> np.ndarray:
        weight = integers(first, last)
        return weight.dequantize(group_size) if group_of is None else _scattered(weight, group_of)

    reason = _why_not(bits, group_size, symmetric, scales, group_of)
    if reason:
        return StoredWeight(shape, None, reason, _no_integers, values)
    if not group_size and not symmetric:
        groups = -(-shape[1] // _CHANNEL_GROUP)
        scheme = WeightScheme(WeightType.INT4, _CHANNEL_GROUP, symmetric=False)
        return StoredWeight(shape, scheme, "", lambda first, last: _repeated(integers(first, last), groups), values)
    scheme = WeightScheme(WeightType.INT4 if bits == 4 else WeightType.INT8, group_size, symmetric)
    if scheme.type is WeightType.INT4:  # kernels round the inputs of int4 weights as they like
        activation, input_scale = ActivationScheme.NONE, None
    return StoredWeight(shape, scheme, "", integers, values, activation, input_scale)


def _why_not(bits: int, group_size: int, symmetric: bool, scales: np.ndarray, group_of: np.ndarray | None) -> str:
    if group_of is not None:
        return "its groups are scattered over the inputs (act-order, g_idx)"
    if bits == 8 and not symmetric:
        return "8-bit integers with zero points"
    if (group_size or not symmetric) and not _fits_fp16(scales):
        return "fp16 cannot hold its scales exactly"
    return ""


def _fits_fp16(scales: np.ndarray) -> bool:
    if scales.dtype == np.float16:
        return True
    exact = np.asarray(scales, np.float32)
    with np.errstate(over="ignore"):
        return np.array_equal(exact.astype(np.float16).astype(np.float32), exact, equal_nan=True)


def _repeated(weight: QuantizedWeight, groups: int) -> QuantizedWeight:
    zero = None if weight.zero is None else np.repeat(weight.zero, groups, axis=1)
    return QuantizedWeight(weight.q, np.repeat(weight.scale, groups, axis=1), zero)


def _scattered(weight: QuantizedWeight, group_of: np.ndarray) -> np.ndarray:
    values = weight.q.astype(np.float32)
    if weight.zero is not None:
        values -= weight.zero[:, group_of]
    return values * weight.scale[:, group_of]


def _no_integers(first: int, last: int) -> QuantizedWeight:
    raise ValueError("this weight has no integers for kernels")
