"""Buffers, and the strided views of them that tensors are. No data moves here.

Every buffer lies in memory as [T, static...] (or [R, static...], or static): one token's elements are together, so all
strides are integers, whatever order the network's shapes have.
"""

from dataclasses import dataclass, field
from enum import Enum, auto

from .dims import ONE, Dim, Shape, Symbol, static_size, symbol_of


class DType(Enum):
    """Element types in memory. The network's int64 is int32 here; its bool is a byte.

    BF16 is a float buffer that a target keeps so; lowering itself knows F32 alone.
    """

    F32 = "float32"
    BF16 = "bfloat16"
    I32 = "int32"
    BOOL = "bool"

    @property
    def nbytes(self) -> int:
        return {DType.BOOL: 1, DType.BF16: 2}.get(self, 4)


class Home(Enum):
    """Where a buffer lives."""

    ARENA = auto()
    INPUT = auto()
    WEIGHTS = auto()


@dataclass(eq=False)
class Buffer:
    """`row_size` elements for each unit of `symbol`. `offset` is in bytes within its home, set by the planners."""

    name: str
    dtype: DType
    symbol: Symbol
    row_size: int
    home: Home = Home.ARENA
    offset: int = -1

    @property
    def row_bytes(self) -> int:
        return self.row_size * self.dtype.nbytes


@dataclass(frozen=True)
class View:
    """A tensor: element [i, j, ...] is at `offset + i * strides[0] + j * strides[1] + ...` elements of the buffer."""

    buffer: Buffer = field(repr=False)
    shape: Shape
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    def transpose(self, permutation: tuple[int, ...]) -> "View":
        return self._with(tuple(self.shape[p] for p in permutation), tuple(self.strides[p] for p in permutation))

    def expand(self, shape: Shape) -> "View":
        """Broadcast to `shape` (NumPy rules) by strides of zero."""
        lead = len(shape) - len(self.shape)
        strides = [0] * lead
        for have, want, stride in zip(self.shape, shape[lead:], self.strides, strict=True):
            if have != want and not have.is_one:
                raise ValueError(f"cannot broadcast {show(self.shape)} to {show(shape)}")
            strides.append(0 if have.is_one and not want.is_one else stride)
        return self._with(shape, tuple(strides))

    def slice(self, axis: int, start: int, count: int, step: int = 1) -> "View":
        """Elements start, start + step, ... (`count` of them) of a static axis."""
        shape, strides = list(self.shape), list(self.strides)
        shape[axis] = Dim(count)
        strides[axis] *= step
        offset = self.offset + start * self.strides[axis]
        return View(self.buffer, tuple(shape), tuple(strides), offset)

    def reshape(self, shape: Shape) -> "View | None":
        """The same elements in the same order under another shape; None where that needs a copy."""
        runs = _runs(self.shape, self.strides)
        strides: list[int] = []
        for dim in reversed(shape):
            if dim.is_one:
                strides.append(0)
                continue
            while runs and runs[-1][0].is_one:
                runs.pop()
            if not runs:
                return None
            size, stride = runs[-1]
            rest = _divide(size, dim)
            if rest is None:
                return None
            strides.append(stride)
            runs[-1] = (rest, stride * dim.count if dim.is_static else 0)
        if any(not size.is_one for size, _ in runs):
            return None
        return self._with(shape, tuple(reversed(strides)))

    def columns(self) -> tuple[int, int]:
        """First and last element, within one row of the buffer, that this view can touch."""
        last = self.offset % self.buffer.row_size if self.buffer.row_size else 0
        first = last
        for dim, stride in zip(self.shape, self.strides, strict=True):
            last += (dim.count - 1) * stride
        return first, last

    def _with(self, shape: Shape, strides: tuple[int, ...]) -> "View":
        return View(self.buffer, shape, strides, self.offset)


def _runs(shape: Shape, strides: tuple[int, ...]) -> list[tuple[Dim, int]]:
    """Merge neighbouring dimensions that step through memory as one; sizes of one vanish."""
    runs: list[tuple[Dim, int]] = []
    for dim, stride in zip(shape, strides, strict=True):
        if dim.is_one:
            continue
        if runs and dim.is_static and runs[-1][1] == stride * dim.count:
            outer = runs[-1][0]
            runs[-1] = (Dim(outer.count * dim.count, outer.symbol), stride)
        else:
            runs.append((dim, stride))
    return runs


def _divide(size: Dim, inner: Dim) -> Dim | None:
    """What is left outside when `inner` is split off the inner end of `size`; None when that is not a Dim."""
    if size.count % inner.count:
        return None
    if inner.is_static:
        return Dim(size.count // inner.count, size.symbol)
    return ONE if inner == size else None


def contiguous(buffer: Buffer, shape: Shape) -> View:
    """The view of a whole buffer: its symbolic dimension outermost in memory, the others in order."""
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(range(len(shape))):
        if shape[axis].is_static:
            strides[axis] = 0 if shape[axis].is_one else step
            step *= shape[axis].count
    for axis, dim in enumerate(shape):
        if not dim.is_static:
            strides[axis] = step
    return View(buffer, shape, tuple(strides))


def new_buffer(name: str, dtype: DType, shape: Shape, home: Home = Home.ARENA) -> Buffer | None:
    """A buffer that holds `shape`; None when more than one of its dimensions is symbolic."""
    symbol = symbol_of(shape)
    return None if symbol is None else Buffer(name, dtype, symbol, static_size(shape), home)


def show(shape: Shape) -> str:
    return "[" + ", ".join(str(dim) for dim in shape) + "]"
