"""What is known of the values of a network before anything runs."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from ..passes import derived
from .dims import Dim, Shape, Symbol, parse_dim
from .expressions import Scalar
from .views import DType, show

if TYPE_CHECKING:
    from ..network import Network

_DTYPES = {
    ir.DataType.FLOAT: DType.F32,
    ir.DataType.DOUBLE: DType.F32,
    ir.DataType.FLOAT16: DType.F32,
    ir.DataType.BFLOAT16: DType.F32,
    ir.DataType.INT64: DType.I32,
    ir.DataType.INT32: DType.I32,
    ir.DataType.INT16: DType.I32,
    ir.DataType.INT8: DType.I32,
    ir.DataType.UINT8: DType.I32,
    ir.DataType.BOOL: DType.BOOL,
}
_INT32 = np.iinfo(np.int32)


class Unsupported(Exception):
    """This node cannot be lowered; the message says why. Collected, then raised all at once."""


@dataclass
class Facts:
    """Shapes, element types and constants of one network, which stays as it is."""

    network: "Network"
    _static: dict[ir.Value, bool] = field(default_factory=dict)

    def shape(self, value: ir.Value) -> Shape:
        if value.shape is None:
            raise Unsupported(f"the shape of {value.name!r} is not known")
        return tuple(parse_dim(dim if isinstance(dim, int) else str(dim.value)) for dim in value.shape)

    def dtype(self, value: ir.Value) -> DType:
        if value.dtype is None or value.dtype not in _DTYPES:
            raise Unsupported(f"{value.name!r} has the element type {value.dtype}")
        return _DTYPES[value.dtype]

    def is_parameter(self, value: ir.Value) -> bool:
        return value.name in self.network.parameters

    def is_static(self, value: ir.Value) -> bool:
        """Whether the value depends on parameters and constants alone, so that it is made at build time."""
        if value not in self._static:
            self._static[value] = derived.is_derived(value)
        return self._static[value]

    def constant(self, value: ir.Value | None) -> np.ndarray | None:
        """The data of a value that is known now; None when it depends on parameters or on the step."""
        if value is None or not self.is_static(value) or derived.depends_on_parameter(value):
            return None
        if value.const_value is not None:
            return value.const_value.numpy()
        return derived.compute(value, _no_parameter)

    def integers(self, value: ir.Value | None, what: str) -> list[int] | None:
        """The integers of an optional constant input (the axes of a reduction, say). Raises Unsupported if computed."""
        if value is None:
            return None
        data = self.constant(value)
        if data is None:
            raise Unsupported(f"its {what} are computed at run time")
        return [int(item) for item in np.atleast_1d(data)]


def _no_parameter(name: str) -> np.ndarray:
    raise LookupError(f"{name} is not known before weights are packed")


def product(shape: Shape) -> Dim:
    """The size of dimensions merged into one."""
    count, symbol = 1, Symbol.ONE
    for dim in shape:
        count *= dim.count
        if not dim.is_static:
            if symbol is not Symbol.ONE:
                raise Unsupported(f"the shape {show(shape)} has two sizes that vary")
            symbol = dim.symbol
    return Dim(count, symbol)


def scalar_of(data: np.ndarray, dtype: DType) -> Scalar:
    """The one element of `data`, as it lies in memory here."""
    item = data.reshape(()).item()
    if dtype is DType.F32:
        return Scalar(float(np.float32(item)), dtype)
    if dtype is DType.BOOL:
        return Scalar(bool(item), dtype)
    return Scalar(int(min(max(item, _INT32.min), _INT32.max)), dtype)
