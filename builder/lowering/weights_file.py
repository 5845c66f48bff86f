"""weights.bin: where every weight lies in it, and writing it a few panels at a time."""

import mmap
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_ir as ir

from ...errors import BuildError
from ...progress import NoProgress, Progress
from ...quantization import fp8, rtn
from ...quantization.quantized import QuantizedWeight
from ...quantization.scheme import WeightType
from ...units import shown_size
from ..passes import derived
from ..passes.derived import Read
from .memory_plan import align
from .program import LinearWeight, PackedLayout, PlainWeight, Program, Rows
from .views import DType

_STEP_BYTES = 16 << 20


LayoutOf = Callable[[LinearWeight], PackedLayout]
"""How a target packs a weight."""


def plan_weights(program: Program, layout_of: LayoutOf) -> None:
    """Set the offsets of all weights, 64-byte aligned, in the order they are used, and `weights_bytes`."""
    offset = 0
    for weight in program.plain_weights:
        weight.buffer.offset = offset
        offset += align(weight.nbytes)
    for weight in program.packed_weights:
        weight.offset, weight.nbytes = offset, layout_of(weight).nbytes * weight.count
        offset += align(weight.nbytes)
    program.weights_bytes = max(offset, 64)


def write_weights(
    path: Path, program: Program, layout_of: LayoutOf, read: Read, progress: Progress | None = None
) -> None:
    """Write weights.bin. `read(parameter)` gives a weight, best as a view of a mapped file. Those that the checkpoint
    holds quantized are not rounded again.

    Only a few tens of megabytes are held at a time: sources are read by rows, and pages already written are handed to
    the page cache. Raises BuildError for a weight with NaN or infinite elements, OSError where the
    disk has no room for all of them.
    """
    progress = progress or NoProgress()
    with path.open("w+b") as file:
        _reserve(file.fileno(), program.weights_bytes)
        mapped = mmap.mmap(file.fileno(), program.weights_bytes)  # unmapped once the last array over it is gone
        with progress.task("pack weights", program.weights_bytes) as task:
            for weight in program.plain_weights:
                _write_plain(weight, _region(mapped, weight.buffer.offset, weight.nbytes), read)
                task.advance(align(weight.nbytes))
            for weight in program.packed_weights:
                _write_linear(weight, layout_of(weight), _region(mapped, weight.offset, weight.nbytes), read)
                _release(mapped, weight.offset, weight.nbytes)
                task.advance(align(weight.nbytes))


def _reserve(descriptor: int, nbytes: int) -> None:
    """Claim the disk space now: a mapped write to a full disk would kill the process."""
    try:
        os.posix_fallocate(descriptor, 0, nbytes)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}: its weights take {shown_size(nbytes)}") from error


def _region(mapped: mmap.mmap, offset: int, nbytes: int) -> np.ndarray:
    return np.frombuffer(mapped, np.uint8, nbytes, offset)


def _release(mapped: mmap.mmap, offset: int, nbytes: int) -> None:
    """Let go of whole pages that are done; they stay in the page cache and go to disk from there."""
    first = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (offset + nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if last > first:
        mapped.madvise(mmap.MADV_DONTNEED, first, last - first)


def _write_linear(weight: LinearWeight, layout: PackedLayout, out: np.ndarray, read: Read) -> None:
    for expert, part in enumerate(out.reshape(weight.count, layout.nbytes)):
        sources = matrices_of(weight, expert, read)
        layout.pack(sources[0], part, *sources[1:])


def matrices_of(weight: LinearWeight, expert: int, read: Read) -> Sequence[Rows]:
    """The matrices of a weight, or of one of its experts: as the checkpoint stores them, or else rounded."""
    return weight.stored or [_rows_of(source, weight, expert, read) for source in weight.sources]


def _rows_of(source: ir.Value, weight: LinearWeight, expert: int, read: Read) -> Rows:
    def rows(first: int, last: int) -> np.ndarray | QuantizedWeight:
        if len(source.shape or ()) == 3:
            values = derived.rows_of(source, expert, first, last, read)
        else:
            values = derived.rows(source, first, last, read, transposed=weight.transposed)
        values = _finite(values, source)
        scheme = weight.scheme.weight
        if scheme.type is WeightType.FP8:
            return fp8.quantize(values, scheme)
        return rtn.quantize(values, scheme) if scheme.type.is_integer else values

    return rows


def _write_plain(weight: PlainWeight, out: np.ndarray, read: Read) -> None:
    source, dtype = weight.source, weight.buffer.dtype
    shape = derived.static_dims(source)
    if dtype is not DType.F32 or not shape:
        out[:] = np.frombuffer(_plain_array(weight, derived.compute(source, read)).tobytes(), np.uint8)
        return
    row_bytes = len(out) // shape[0] if shape[0] else 0
    step = max(1, _STEP_BYTES // max(row_bytes, 1))
    for first in range(0, shape[0], step):
        last = min(first + step, shape[0])
        values = derived.rows(source, first, last, read)
        if derived.depends_on_parameter(source):
            _finite(values, source)
        out[first * row_bytes : last * row_bytes] = _plain_array(weight, values).reshape(-1).view(np.uint8)


def _plain_array(weight: PlainWeight, values: np.ndarray) -> np.ndarray:
    if weight.buffer.dtype is DType.I32:
        limits = np.iinfo(np.int32)
        return np.clip(values, limits.min, limits.max).astype(np.int32)
    if weight.buffer.dtype is DType.BOOL:
        return (values != 0).astype(np.uint8)
    if weight.add:
        values = values + np.float32(weight.add)
    return values.astype(ml_dtypes.bfloat16 if weight.bf16 else np.float32)


def _finite(values: np.ndarray, source: ir.Value) -> np.ndarray:
    if not np.isfinite(values).all():
        names = ", ".join(derived.parameters_of(source))
        bad = int(values.size - np.isfinite(values).sum())
        raise BuildError(f"the weight {names} holds {bad} NaN or infinite values; the checkpoint is damaged")
    return values
