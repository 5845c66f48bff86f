"""Parameters that a checkpoint stores in other tensors: stacked, joined, cut, turned.

Nothing is read before it is asked for, and then only the stored tensors that the slice needs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Box = tuple[range, ...]
ReadTensor = Callable[[str], np.ndarray]


@dataclass(frozen=True)
class Assembly:
    """A tensor of `shape`, made of `parts` by `kind`:

    stored: the checkpoint's tensor `name`. stack, concat: the parts along `axis`. slice: elements first, first + step,
    ... of the part's `axis`. transpose: the part's dimensions in `order`. reshape: its elements in another shape.
    """

    kind: str
    shape: tuple[int, ...]
    parts: tuple["Assembly", ...] = ()
    name: str = ""
    axis: int = 0
    first: int = 0
    step: int = 1
    order: tuple[int, ...] = ()

    def names(self) -> list[str]:
        """The stored tensors that it is made of, each once."""
        if self.kind == "stored":
            return [self.name]
        return list(dict.fromkeys(name for part in self.parts for name in part.names()))

    def renamed(self, names: Mapping[str, str]) -> "Assembly":
        """The same made of other stored tensors."""
        if self.kind == "stored":
            return Assembly("stored", self.shape, name=names[self.name])
        parts = tuple(part.renamed(names) for part in self.parts)
        return Assembly(self.kind, self.shape, parts, "", self.axis, self.first, self.step, self.order)

    def to_json(self) -> list[Any]:
        """Lists, numbers and strings alone."""
        parts = [part.to_json() for part in self.parts]
        return [self.kind, list(self.shape), parts, self.name, self.axis, self.first, self.step, list(self.order)]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> "Assembly":
        """What `to_json` gave."""
        kind, shape, parts, name, axis, first, step, order = data
        made = tuple(cls.from_json(part) for part in parts)
        return cls(kind, tuple(shape), made, name, axis, first, step, tuple(order))

    def region(self, box: Box, read: ReadTensor) -> np.ndarray:
        """The elements at the indices of `box`, one range for each dimension, in the stored dtype."""
        match self.kind:
            case "stored":
                return read(self.name)[tuple(slice(r.start, r.stop, r.step) for r in box)]
            case "stack":
                rest = (*box[: self.axis], *box[self.axis + 1 :])
                wanted = [self.parts[i].region(rest, read) for i in box[self.axis]]
                return np.expand_dims(wanted[0], self.axis) if len(wanted) == 1 else np.stack(wanted, self.axis)
            case "concat":
                return self._concatenated(box, read)
            case "slice":
                inner = range(self.first, self.first + self.step * self.shape[self.axis], self.step)
                r = box[self.axis]
                picked = inner[r.start : r.stop : r.step]
                return self.parts[0].region((*box[: self.axis], picked, *box[self.axis + 1 :]), read)
            case "transpose":
                turned = tuple(box[self.order.index(axis)] for axis in range(len(box)))
                return self.parts[0].region(turned, read).transpose(self.order)
            case _:
                whole = self.parts[0].region(tuple(map(range, self.parts[0].shape)), read).reshape(self.shape)
                return whole[tuple(slice(r.start, r.stop, r.step) for r in box)]

    def _concatenated(self, box: Box, read: ReadTensor) -> np.ndarray:
        wanted, found, offset = box[self.axis], [], 0
        for part in self.parts:
            size = part.shape[self.axis]
            inside = [i - offset for i in (wanted if wanted.step != 1 else ()) if offset <= i < offset + size]
            here = (
                range(max(wanted.start - offset, 0), min(wanted.stop - offset, size))
                if wanted.step == 1
                else range(inside[0], inside[-1] + 1, wanted.step)
                if inside
                else range(0)
            )
            if len(here):
                found.append(part.region((*box[: self.axis], here, *box[self.axis + 1 :]), read))
            offset += size
        return found[0] if len(found) == 1 else np.concatenate(found, self.axis)


@dataclass(frozen=True)
class AssembledTensor:
    """An assembly over a checkpoint's tensors, which slices of step 1 are taken of as of an array."""

    assembly: Assembly
    _read: ReadTensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.assembly.shape

    def __getitem__(self, box: tuple[slice, ...]) -> np.ndarray:
        ranges = [range(size)[part] for size, part in zip(self.shape, box, strict=False)]
        return self.assembly.region((*ranges, *map(range, self.shape[len(ranges) :])), self._read)

    def values(self) -> np.ndarray:
        """All of it."""
        return self[()]
