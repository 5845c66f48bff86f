"""The safetensors header: read by us, every claim in it checked before a byte of data is looked at.

Format: 8 bytes little-endian header length, that many bytes of JSON, then the tensors' bytes without gaps.
"""

import math
import stat
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from .. import json_files
from ..errors import CheckpointError, cannot_read
from .files import refuse_pointer
from .lfs_pointer import PREFIX_BYTES

MAX_HEADER_BYTES = 100_000_000  # the safetensors library's own limit
_MAX_DIMENSIONS = 32
_MAX_TENSOR_BYTES = 1 << 60

DTYPES: dict[str, np.dtype] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype("u1"),
    "I8": np.dtype("i1"),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class TensorInfo:
    """Where one tensor lies. `offset` counts bytes from the start of `file`."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    file: Path
    offset: int
    nbytes: int


def read_header(path: Path) -> dict[str, TensorInfo]:
    """The tensors of one safetensors file, by name.

    Checks the header's length and JSON, each tensor's dtype, shape and offsets, that nbytes is what shape and dtype
    ask for, that the tensors fill the data part without gap or overlap, and that the file is neither shorter nor
    longer than its header says. Raises CheckpointError naming the file, the tensor, the limit and the value found.
    """
    size, raw = _header_bytes(path)
    start = 8 + len(raw)
    try:
        header = json_files.parse(raw, unique=True)
    except ValueError as error:
        raise _damaged(path, f"its header is not valid JSON ({error})") from error
    if not isinstance(header, dict):
        raise _damaged(path, f"its header should be a JSON object, found {type(header).__name__}")
    header.pop("__metadata__", None)
    infos = [_tensor_info(path, name, entry, start) for name, entry in header.items()]
    _check_layout(path, infos, start, size)
    return {info.name: info for info in infos}


def _header_bytes(path: Path) -> tuple[int, bytes]:
    """The file's size and its header's JSON."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(f"{path}: not a regular file.")
        with path.open("rb") as file:
            beginning = file.read(PREFIX_BYTES)
            refuse_pointer(path, beginning)
            prefix = beginning[:8]
            length = int.from_bytes(prefix, "little")
            if len(prefix) < 8:
                raise _damaged(path, f"{len(prefix)} bytes long; a safetensors file has at least 8")
            if length > MAX_HEADER_BYTES:
                raise _damaged(path, f"its header claims {length} bytes; the limit is {MAX_HEADER_BYTES}")
            if 8 + length > status.st_size:
                raise _damaged(path, f"cut short: expected at least {8 + length} bytes, found {status.st_size}")
            file.seek(8)
            return status.st_size, file.read(length)
    except OSError as error:
        raise CheckpointError(cannot_read(path, error)) from error


def _tensor_info(path: Path, name: str, entry: object, start: int) -> TensorInfo:
    if not isinstance(entry, dict) or not entry.keys() >= {"dtype", "shape", "data_offsets"}:
        raise _damaged(path, f"tensor {name!r} lacks one of dtype, shape, data_offsets")
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not _sizes(shape) or len(shape) > _MAX_DIMENSIONS:
        raise _damaged(path, f"tensor {name!r} has shape {_short(shape)}; expected at most {_MAX_DIMENSIONS} sizes")
    if not _sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _damaged(path, f"tensor {name!r} has data_offsets {_short(offsets)}; expected [begin, end]")
    dtype = DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if dtype is None:
        raise CheckpointError(
            f"{path}: tensor {name!r} has dtype {_short(entry['dtype'])}; known: {', '.join(DTYPES)}."
        )
    if math.prod(max(size, 1) for size in shape) * dtype.itemsize > _MAX_TENSOR_BYTES:
        raise _damaged(path, f"tensor {name!r} has shape {_short(shape)}, past the limit of {_MAX_TENSOR_BYTES} bytes")
    needed, found = math.prod(shape) * dtype.itemsize, offsets[1] - offsets[0]
    if needed != found:
        raise _damaged(path, f"tensor {name!r}: {entry['dtype']} {shape} takes {needed} bytes, its offsets {found}")
    return TensorInfo(name, dtype, tuple(shape), path, start + offsets[0], found)


def _check_layout(path: Path, infos: list[TensorInfo], start: int, size: int) -> None:
    """The tensors lie end to end from `start` to the end of the file."""
    position = start
    for info in sorted(infos, key=lambda info: (info.offset, info.nbytes)):
        if info.offset != position:
            what = "overlaps the tensor before it" if info.offset < position else "leaves a gap before it"
            raise _damaged(path, f"tensor {info.name!r} {what} (begins at byte {info.offset}, not {position})")
        position += info.nbytes
    if position > size:
        raise _damaged(path, f"cut short: expected {position} bytes, found {size}")
    if position < size:
        raise _damaged(path, f"too long: expected {position} bytes, found {size}")


def _sizes(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of too many digits to print
        text = "a number out of range"
    return text if len(text) <= 80 else text[:77] + "..."


def _damaged(path: Path, what: str) -> CheckpointError:
    return CheckpointError(f"{path}: {what}. The file is damaged; download it again.")
