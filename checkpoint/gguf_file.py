"""The GGUF container: its metadata and tensor table, every length and offset checked against the file.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError, shown
from .lfs_pointer import PREFIX_BYTES, is_lfs_pointer, lfs_pointer_message

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")
_MAX_ARRAY = 1024  # a value for each layer is kept
_MAX_DIMENSIONS = 4
_MAX_ELEMENTS = 1 << 56


@dataclass(frozen=True)
class GgufTensor:
    """One tensor: `shape` as NumPy orders it (rows first); `data`, uint8 [..., bytes of a row], is a mapped view."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    data: np.ndarray

    def dequantize(self, rows: slice = slice(None)) -> np.ndarray:
        """Some of its rows as float32 (or as its own integer type). Raises NotImplementedError for unknown types."""
        from gguf import GGMLQuantizationType, dequantize

        return dequantize(self.data[rows], GGMLQuantizationType(self.type_id))


@dataclass(frozen=True)
class GgufArray:
    """An array that is left in the file: texts, or more than 1024 numbers. `data` begins at its first element."""

    kind: int
    count: int
    data: memoryview

    def read(self) -> list[Any]:
        """All its elements. Raises UnicodeDecodeError for text that is not UTF-8."""
        if self.kind != _STRING:
            return list(struct.unpack_from(f"<{self.count}{_SCALARS[self.kind]}", self.data))
        values, at = [], 0
        for _ in range(self.count):
            (length,) = _LENGTH.unpack_from(self.data, at)
            values.append(str(self.data[at + 8 : at + 8 + length], "utf-8"))
            at += 8 + length
        return values


@dataclass(frozen=True)
class GgufFile:
    """`metadata` has of texts' arrays and of long ones, the vocabulary's, only the length; `arrays` has them."""

    path: Path
    metadata: dict[str, Any]
    tensors: list[GgufTensor]
    arrays: dict[str, GgufArray] = field(default_factory=dict)

    def array(self, key: str) -> list[Any]:
        """The elements of an array, long or short; none where the file has no such key.

        Raises CheckpointError where the key holds something else, or text that is not UTF-8.
        """
        try:
            if key in self.arrays:
                return self.arrays[key].read()
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{self.path}: {key} is damaged: {error}. Download it again.") from error
        value = self.metadata.get(key, ())
        if not isinstance(value, tuple):
            raise CheckpointError(f"{self.path}: {key} should be an array, found {shown(value)}.")
        return list(value)

    @property
    def architecture(self) -> str:
        """llama.cpp's name for the model's architecture."""
        return str(self.metadata.get("general.architecture", ""))


def read_gguf(path: Path) -> GgufFile:
    """Read the tables of a GGUF file. Raises CheckpointError where it is no GGUF file, is damaged, or cut short."""
    try:
        blob = np.memmap(path, dtype=np.uint8, mode="r")
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}.") from error
    if is_lfs_pointer(bytes(blob[:PREFIX_BYTES])):
        raise CheckpointError(lfs_pointer_message(path))
    if bytes(blob[:4]) != b"GGUF":
        raise CheckpointError(f"{path}: not a GGUF file: it begins with {bytes(blob[:4])!r}, not b'GGUF'.")
    try:
        return _Cursor(path, np.asarray(blob)).read_file()
    except (struct.error, UnicodeDecodeError, _Damage) as error:
        raise CheckpointError(f"{path}: damaged or cut short: {error}. Download it again.") from error


class _Damage(Exception):
    pass


def _distinct(what: str, entries: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    result = {}
    for name, value in entries:
        if name in result:
            raise _Damage(f"{what} {name!r} appears twice")
        result[name] = value
    return result


class _Cursor:
    """A place in the file. `struct` refuses to read past the end; lengths are checked before they are followed."""

    def __init__(self, path: Path, blob: np.ndarray) -> None:
        self._path, self._blob, self._view, self._at = path, blob, blob.data, 4
        self._arrays: dict[str, GgufArray] = {}

    def read_file(self) -> GgufFile:
        version, tensors, entries = self._unpack("IQQ")
        if version not in (2, 3):
            raise CheckpointError(f"{self._path}: GGUF version {version}; versions 2 and 3 are read.")
        metadata = _distinct("key", (self._entry() for _ in range(entries)))
        table = _distinct("tensor", (self._tensor_entry() for _ in range(tensors)))
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment <= 0:
            raise _Damage(f"alignment {alignment!r}")
        start = self._at + -self._at % alignment
        found = [self._tensor(start, name, *entry) for name, entry in table.items()]
        return GgufFile(self._path, metadata, found, self._arrays)

    def _unpack(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + form, self._view, self._at)
        self._at += struct.calcsize("<" + form)
        return values

    def _skip(self, length: int) -> int:
        """Move on by `length` bytes; returns where they began."""
        begin = self._at
        if length > len(self._view) - begin:
            raise _Damage(f"{length} bytes are said to follow byte {begin}, of {len(self._view)}")
        self._at += length
        return begin

    def _string(self) -> str:
        (length,) = self._unpack("Q")
        begin = self._skip(length)
        return bytes(self._view[begin : self._at]).decode()

    def _entry(self) -> tuple[str, Any]:
        key = self._string()
        (kind,) = self._unpack("I")
        if kind in _SCALARS:
            return key, self._unpack(_SCALARS[kind])[0]
        if kind == _STRING:
            return key, self._string()
        if kind != _ARRAY:
            raise _Damage(f"metadata of unknown type {kind}")
        return key, self._array(key)

    def _array(self, key: str) -> Any:
        kind, count = self._unpack("IQ")
        begin = self._at
        if kind in _SCALARS:
            if count <= _MAX_ARRAY:
                return self._unpack(f"{count}{_SCALARS[kind]}")
            self._skip(count * struct.calcsize("<" + _SCALARS[kind]))
        elif kind == _STRING:
            for _ in range(count):
                self._skip(self._unpack("Q")[0])
        else:
            raise _Damage(f"an array of unknown type {kind}")
        self._arrays[key] = GgufArray(kind, count, self._view[begin : self._at])
        return count

    def _tensor_entry(self) -> tuple[str, tuple[tuple[int, ...], int, int]]:
        name = self._string()
        (dimensions,) = self._unpack("I")
        if dimensions > _MAX_DIMENSIONS:
            raise _Damage(f"tensor {name!r} has {dimensions} dimensions, of at most {_MAX_DIMENSIONS}")
        shape = self._unpack(f"{dimensions}Q")[::-1]
        type_id, offset = self._unpack("IQ")
        return name, (shape, type_id, offset)

    def _tensor(self, start: int, name: str, shape: tuple[int, ...], type_id: int, offset: int) -> GgufTensor:
        from gguf import GGML_QUANT_SIZES

        sizes = {int(kind): size for kind, size in GGML_QUANT_SIZES.items()}
        if type_id not in sizes:
            raise CheckpointError(f"{self._path}: tensor {name!r} has element type {type_id}, which is not known.")
        block, block_bytes = sizes[type_id]
        columns = shape[-1] if shape else 1
        if columns % block:
            raise _Damage(f"tensor {name!r} has rows of {columns}, not a multiple of its block of {block}")
        row_bytes = columns // block * block_bytes
        if math.prod(max(size, 1) for size in shape) > _MAX_ELEMENTS:
            raise _Damage(f"tensor {name!r} has shape {list(shape)}, past the limit of {_MAX_ELEMENTS} elements")
        begin, nbytes = start + offset, math.prod(shape[:-1]) * row_bytes
        if begin + nbytes > len(self._blob):
            raise _Damage(f"tensor {name!r} ends at byte {begin + nbytes}, past the file's end at {len(self._blob)}")
        data = self._blob[begin : begin + nbytes].reshape(*shape[:-1], row_bytes)
        return GgufTensor(name, shape, type_id, data)
