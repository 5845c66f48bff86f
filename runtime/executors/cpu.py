"""Runs a compiled CPU engine: maps its weights, loads its library, and hands it steps through ctypes.

Every array the library reads lies in a buffer made once; a step fills slices of them by memory copies, so that a decode
step costs a few microseconds of Python. ctypes releases the GIL while the library works.
"""

import ctypes
import weakref
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...atomic import temporary_folder
from ...errors import EngineError, shown
from ..manifest import LONG_ROPE, Manifest
from ..sampling_params import MAX_LOGPROBS
from ..threads import physical_cores
from .cpu_abi import ABI_VERSION, EsOpenArgs, EsSample, EsStep, declare
from .cpu_facts import cpu_facts
from .executor import Sample, SampleRow, SequenceSlice
from .mapped_file import MappedFile

if TYPE_CHECKING:
    import numpy as np


_MAX_THREADS = 1024
_SMALLEST, _LARGEST = 2.0**-126, 2.0**100  # normal in float32, and so are logits divided by the largest


class CpuExecutor:
    """An open engine with room for `num_blocks[g]` KV blocks in cache group g. See `Executor` for the methods."""

    def __init__(self, path: Path, manifest: Manifest, num_blocks: Sequence[int], threads: int | None = None) -> None:
        threads = physical_cores() if threads is None else threads
        if type(threads) is not int or not 1 <= threads <= _MAX_THREADS:
            raise EngineError(
                f"threads must be an integer in [1, {_MAX_THREADS}], got {shown(threads)}; "
                "leave it out to use every physical core"
            )
        handle = ctypes.c_void_p()
        target = cpu_facts(manifest)
        self._vocab_size = manifest.model.vocab_size
        self._library = _load_library(path / target.library)
        self._weights = MappedFile(path / target.weights)
        self._step = _StepBuffers(manifest)
        self._sample = _SampleBuffers(manifest.limits.max_batch_size, self._vocab_size)
        blocks = (ctypes.c_int32 * len(num_blocks))(*num_blocks)
        args = EsOpenArgs(self._weights.address, self._weights.size, ctypes.addressof(blocks), len(num_blocks), threads)
        if self._library.es_open(args, handle):
            self._weights.close()
            raise EngineError(f"{path} cannot be opened: {self._last_error()}")
        self._handle: ctypes.c_void_p | None = handle
        self._finalizer = weakref.finalize(self, _close, self._library, handle, self._weights)  # at exit too
        self.threads = threads

    def step(self, slices: Sequence[SequenceSlice], logits_rows: Sequence[int]) -> None:
        args = self._step.fill(slices, logits_rows)
        if self._library.es_step(self._open_handle(), args):
            raise EngineError(f"the engine failed in a step of {args.num_tokens} tokens: {self._last_error()}")

    def sample(self, rows: Sequence[SampleRow]) -> list[Sample]:
        if len(rows) != self._step.args.num_rows:
            raise EngineError(f"{len(rows)} rows to sample, but the last step kept {self._step.args.num_rows}")
        if self._library.es_sample(self._open_handle(), self._sample.fill(rows)):
            raise EngineError(f"the engine failed to sample {len(rows)} tokens: {self._last_error()}")
        return self._sample.read(rows)

    def logits(self) -> "np.ndarray":
        import numpy as np

        rows = self._step.args.num_rows
        address = self._library.es_logits(self._open_handle())
        return np.ctypeslib.as_array(address, shape=(rows, self._vocab_size)).copy()

    def close(self) -> None:
        self._handle = None
        self._finalizer()

    def _open_handle(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise EngineError("the engine was closed: open it again to use it")
        return self._handle

    def _last_error(self) -> str:
        return self._library.es_last_error().decode(errors="replace")


def _close(library: ctypes.CDLL, handle: ctypes.c_void_p, weights: MappedFile) -> None:
    library.es_close(handle)
    weights.close()


class _StepBuffers:
    """An EsStep whose arrays are as long as the engine's limits allow."""

    def __init__(self, manifest: Manifest) -> None:
        limits, kv = manifest.limits, manifest.kv_cache
        self._limits = limits
        self._groups = range(len(kv.groups))
        table_columns = -(-limits.max_seq_len // kv.block_size)
        self._input_ids = _zeros("i", limits.max_num_tokens)
        self._position_ids = _zeros("i", limits.max_num_tokens)
        self._query_start = _zeros("i", limits.max_batch_size + 1)
        self._context_length = _zeros("i", limits.max_batch_size)
        self._block_table = _zeros("i", len(kv.groups) * limits.max_batch_size * table_columns)
        self._logits_rows = _zeros("i", limits.max_batch_size)
        self._positions = array("i", range(limits.max_seq_len))
        self._long_rope_after = manifest.model.long_rope_after
        if self._long_rope_after is not None:
            self._long_positions = array("i", range(LONG_ROPE, LONG_ROPE + limits.max_seq_len))
        self.args = EsStep(
            input_ids=_address(self._input_ids),
            position_ids=_address(self._position_ids),
            query_start=_address(self._query_start),
            context_length=_address(self._context_length),
            block_table=_address(self._block_table),
            logits_rows=_address(self._logits_rows),
        )

    def fill(self, slices: Sequence[SequenceSlice], logits_rows: Sequence[int]) -> EsStep:
        args, seqs = self.args, len(slices)
        columns = max(len(table) for item in slices for table in item.block_tables)
        end = 0
        for index, (token_ids, start, stop, tables) in enumerate(slices):
            begin, end = end, end + stop - start
            self._check(index + 1, end, stop)
            self._query_start[index] = begin
            self._context_length[index] = stop
            self._input_ids[begin:end] = token_ids[start:stop]
            self._position_ids[begin:end] = self._positions_of(token_ids)[start:stop]
            for group in self._groups:
                table = tables[group]
                at = (group * seqs + index) * columns
                self._block_table[at : at + len(table)] = table
        self._query_start[seqs] = end
        for index, row in enumerate(logits_rows):
            self._logits_rows[index] = row
        args.num_tokens, args.num_seqs, args.num_rows, args.max_blocks = end, seqs, len(logits_rows), columns
        return args

    def _positions_of(self, token_ids: array) -> array:
        """All positions, as a sequence of these tokens has them."""
        is_long = self._long_rope_after is not None and len(token_ids) > self._long_rope_after
        return self._long_positions if is_long else self._positions

    def _check(self, seqs: int, tokens: int, position: int) -> None:
        """The library trusts these sizes; a scheduler's mistake must not reach it."""
        limits = self._limits
        if seqs > limits.max_batch_size or tokens > limits.max_num_tokens or position > limits.max_seq_len:
            raise EngineError(f"a step of {seqs} sequences, {tokens} tokens, to position {position} exceeds {limits}")


class _SampleBuffers:
    """An EsSample with room for `rows` rows."""

    def __init__(self, rows: int, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._temperature, self._top_p, self._min_p = _zeros("f", rows), _zeros("f", rows), _zeros("f", rows)
        self._repetition, self._presence, self._frequency = _zeros("f", rows), _zeros("f", rows), _zeros("f", rows)
        self._top_k, self._num_logprobs = _zeros("i", rows), _zeros("i", rows)
        self._seed, self._position = _zeros("Q", rows), _zeros("Q", rows)
        self._history, self._bias_tokens, self._bias_values = _zeros("Q", rows), _zeros("Q", rows), _zeros("Q", rows)
        self._prompt_length, self._history_length, self._bias_length = (_zeros("i", rows) for _ in range(3))
        self._token, self._rank, self._logprob = _zeros("i", rows), _zeros("i", rows), _zeros("f", rows)
        self._top_tokens, self._top_logprobs = _zeros("i", rows * MAX_LOGPROBS), _zeros("f", rows * MAX_LOGPROBS)
        self.args = EsSample(
            temperature=_address(self._temperature),
            top_p=_address(self._top_p),
            min_p=_address(self._min_p),
            top_k=_address(self._top_k),
            repetition_penalty=_address(self._repetition),
            presence_penalty=_address(self._presence),
            frequency_penalty=_address(self._frequency),
            seed=_address(self._seed),
            position=_address(self._position),
            history=_address(self._history),
            prompt_length=_address(self._prompt_length),
            history_length=_address(self._history_length),
            bias_tokens=_address(self._bias_tokens),
            bias_values=_address(self._bias_values),
            bias_length=_address(self._bias_length),
            num_logprobs=_address(self._num_logprobs),
            token=_address(self._token),
            logprob=_address(self._logprob),
            rank=_address(self._rank),
            top_tokens=_address(self._top_tokens),
            top_logprobs=_address(self._top_logprobs),
        )

    def fill(self, rows: Sequence[SampleRow]) -> EsSample:
        columns = 0
        for index, row in enumerate(rows):
            params, length = row.params, len(row.token_ids)
            self._temperature[index] = _float32(params.temperature)
            self._top_p[index] = _float32(params.top_p)
            self._min_p[index] = _float32(params.min_p)
            self._top_k[index] = min(max(params.top_k, 0), self._vocab_size)
            self._repetition[index] = params.repetition_penalty
            self._presence[index] = params.presence_penalty
            self._frequency[index] = params.frequency_penalty
            self._seed[index] = row.seed
            self._position[index] = length - row.prompt_length
            self._prompt_length[index] = row.prompt_length
            self._history_length[index] = length
            self._history[index] = _address(row.token_ids) if params.has_penalties else 0
            wanted = params.logprobs
            self._num_logprobs[index] = -1 if wanted is None else wanted
            columns = columns if wanted is None else max(columns, wanted)
            self._fill_bias(index, row)
        self.args.num_rows, self.args.max_logprobs = len(rows), columns
        return self.args

    def _fill_bias(self, index: int, row: SampleRow) -> None:
        if row.bias_tokens is None or row.bias_values is None:
            self._bias_tokens[index] = self._bias_values[index] = self._bias_length[index] = 0
            return
        self._bias_tokens[index] = _address(row.bias_tokens)
        self._bias_values[index] = _address(row.bias_values)
        self._bias_length[index] = len(row.bias_tokens)

    def read(self, rows: Sequence[SampleRow]) -> list[Sample]:
        samples, columns = [], self.args.max_logprobs
        for index, row in enumerate(rows):
            token, wanted = self._token[index], row.params.logprobs
            if wanted is None:
                samples.append(Sample(token))
                continue
            best = slice(index * columns, index * columns + wanted)
            top = tuple(zip(self._top_tokens[best], self._top_logprobs[best], strict=True))
            samples.append(Sample(token, self._logprob[index], self._rank[index], top))
        return samples


def _float32(value: float) -> float:
    """A setting that is not negative as the kernel takes it: what is positive stays so and finite in float32."""
    return min(max(value, _SMALLEST), _LARGEST) if value > 0 else 0.0


def _zeros(typecode: str, length: int) -> array:
    return array(typecode, bytes(array(typecode).itemsize * length))


def _address(values: array) -> int:
    return values.buffer_info()[0]


def _load_library(path: Path) -> ctypes.CDLL:
    """Load an engine library under a name of its own.

    The C library recognises a library by its path before it looks at the file: an engine rebuilt in place would
    silently be the old one. A passing symbolic link gives every load a fresh path.
    """
    try:
        with temporary_folder() as folder:
            link = folder / path.name
            link.symlink_to(path.resolve())
            library = ctypes.CDLL(str(link))
        declare(library)
    except (OSError, AttributeError) as error:
        raise EngineError(f"{path} cannot be loaded: {error}; rebuild the engine") from None
    version = library.es_abi_version()
    if version != ABI_VERSION:
        raise EngineError(f"{path} speaks ABI {version}, this enginesmith {ABI_VERSION}: rebuild the engine")
    return library
