"""Writes one safetensors file whose layout is known beforehand: tensors arrive in any order, whole or row by row."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ..atomic import new_file
from .safetensors import DTYPE_NAMES


class SafetensorsWriter:
    """An open file; `write` puts each tensor where the header already says it is. Memory: none beyond the caller's."""

    def __init__(self, descriptor: int, tensors: Mapping[str, tuple[np.dtype, tuple[int, ...]]]) -> None:
        self._descriptor = descriptor
        self._tensors = dict(tensors)
        header, self._begin = _header(tensors)
        self._missing = {name: math.prod(shape) for name, (_, shape) in tensors.items()}
        _write_at(descriptor, memoryview(header), 0)
        os.ftruncate(descriptor, len(header) + sum(_nbytes(*entry) for entry in tensors.values()))

    def write(self, name: str, rows: np.ndarray, first_row: int = 0) -> None:
        """Write `rows` of tensor `name`, beginning at `first_row`; cast to the tensor's dtype if need be.

        Raises KeyError for a tensor the layout lacks, ValueError for rows that do not fit its shape.
        """
        dtype, shape = self._tensors[name]
        if rows.ndim != len(shape) or rows.shape[1:] != shape[1:] or (shape and first_row + len(rows) > shape[0]):
            raise ValueError(f"{name}: expected {list(shape)}, found {list(rows.shape)} from row {first_row}")
        data = np.ascontiguousarray(rows, dtype)
        offset = self._begin[name] + first_row * _nbytes(dtype, shape[1:])
        _write_at(self._descriptor, data.reshape(-1).view(np.uint8).data, offset)
        self._missing[name] -= data.size

    @property
    def incomplete(self) -> list[str]:
        """Tensors of which not every element was written."""
        return [name for name, left in self._missing.items() if left]


@contextmanager
def new_safetensors(path: Path, tensors: Mapping[str, tuple[np.dtype, tuple[int, ...]]]) -> Iterator[SafetensorsWriter]:
    """A safetensors file that appears at `path` when the block ends well. `tensors`: name to dtype and shape."""
    with new_file(path) as work:
        descriptor = os.open(work, os.O_RDWR)
        try:
            writer = SafetensorsWriter(descriptor, tensors)
            yield writer
            if writer.incomplete:
                raise ValueError(f"tensors were not written: {', '.join(writer.incomplete)}")
        finally:
            os.close(descriptor)


def _nbytes(dtype: np.dtype, shape: tuple[int, ...]) -> int:
    return math.prod(shape) * dtype.itemsize


def _header(tensors: Mapping[str, tuple[np.dtype, tuple[int, ...]]]) -> tuple[bytes, dict[str, int]]:
    """The file's head, padded so that data begins at a multiple of 64, and where each tensor begins in the file."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offsets, end = {}, 0
    for name, (dtype, shape) in tensors.items():
        offsets[name], end = end, end + _nbytes(dtype, shape)
        entries[name] = {"dtype": DTYPE_NAMES[dtype], "shape": list(shape), "data_offsets": [offsets[name], end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return len(text).to_bytes(8, "little") + text, {name: 8 + len(text) + at for name, at in offsets.items()}


def _write_at(descriptor: int, view: memoryview, offset: int) -> None:
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
