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

from ...errors import EngineError, shown
from ..manifest import LONG_ROPE, Manifest
from ..threads import physical_cores
from .cpu_abi import ABI_VERSION, EsOpenArgs, EsStep, declare
from .cpu_facts import cpu_facts
from .executor import Draw, Sample, SequenceSlice
from .mapped_file import MappedFile
from .native_arrays import address, zeros
from .sampler import Sampler
from .sampler_abi import EsParallel
from .shared_library import load_library

if TYPE_CHECKING:
    import numpy as np


_MAX_THREADS = 1024


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
        self._library = load_library(path / target.library, declare)
        if (version := self._library.es_abi_version()) != ABI_VERSION:
            raise EngineError(f"{path} speaks ABI {version}, this enginesmith {ABI_VERSION}: rebuild the engine")
        self._weights = MappedFile(path / target.weights)
        self._step = _StepBuffers(manifest)
        blocks = (ctypes.c_int32 * len(num_blocks))(*num_blocks)
        args = EsOpenArgs(self._weights.address, self._weights.size, ctypes.addressof(blocks), len(num_blocks), threads)
        if self._library.es_open(args, handle):
            self._weights.close()
            raise EngineError(f"{path} cannot be opened: {self._last_error()}")
        self._handle: ctypes.c_void_p | None = handle
        self._finalizer = weakref.finalize(self, _close, self._library, handle, self._weights)  # at exit too
        self.threads = threads
        parallel = EsParallel()
        self._library.es_parallel(handle, parallel)
        self._sampler = Sampler(path / target.sampler, parallel, manifest.limits.max_logits_rows, self._vocab_size)

    def warm_up(self) -> None:
        self._weights.read_ahead()

    def step(self, slices: Sequence[SequenceSlice], logits_rows: Sequence[int]) -> None:
        args = self._step.fill(slices, logits_rows)
        if self._library.es_step(self._open_handle(), args):
            raise EngineError(f"the engine failed in a step of {args.num_tokens} tokens: {self._last_error()}")

    def sample(self, draws: Sequence[Draw]) -> list[Sample]:
        logits = self._library.es_logits(self._open_handle())
        return self._sampler.sample(logits, self._step.args.num_rows, draws)

    def logits(self) -> "np.ndarray":
        import numpy as np

        rows = self._step.args.num_rows
        logits = self._library.es_logits(self._open_handle())
        return np.ctypeslib.as_array(
            ctypes.cast(logits, ctypes.POINTER(ctypes.c_float)), shape=(rows, self._vocab_size)
        ).copy()

    def close(self) -> None:
        self._handle = None
        self._sampler.close()
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
        self._input_ids = zeros("i", limits.max_num_tokens)
        self._position_ids = zeros("i", limits.max_num_tokens)
        self._query_start = zeros("i", limits.max_batch_size + 1)
        self._context_length = zeros("i", limits.max_batch_size)
        self._block_table = zeros("i", len(kv.groups) * limits.max_batch_size * table_columns)
        self._logits_rows = zeros("i", limits.max_logits_rows)
        self._state_slots = zeros("i", limits.max_batch_size)
        self._positions = array("i", range(limits.max_seq_len))
        self._long_rope_after = manifest.model.long_rope_after
        if self._long_rope_after is not None:
            self._long_positions = array("i", range(LONG_ROPE, LONG_ROPE + limits.max_seq_len))
        self.args = EsStep(
            input_ids=address(self._input_ids),
            position_ids=address(self._position_ids),
            query_start=address(self._query_start),
            context_length=address(self._context_length),
            block_table=address(self._block_table),
            logits_rows=address(self._logits_rows),
            state_slots=address(self._state_slots),
        )

    def fill(self, slices: Sequence[SequenceSlice], logits_rows: Sequence[int]) -> EsStep:
        args, seqs = self.args, len(slices)
        columns = max((len(table) for item in slices for table in item.block_tables), default=0)
        end = 0
        for index, (token_ids, start, stop, tables, slot) in enumerate(slices):
            begin, end = end, end + stop - start
            self._check(index + 1, end, stop, len(logits_rows))
            self._query_start[index] = begin
            self._context_length[index] = stop
            self._state_slots[index] = slot
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

    def _check(self, seqs: int, tokens: int, position: int, rows: int) -> None:
        """The library trusts these sizes; a scheduler's mistake must not reach it."""
        limits = self._limits
        within = seqs <= limits.max_batch_size and tokens <= limits.max_num_tokens and position <= limits.max_seq_len
        if not within or rows > limits.max_logits_rows:
            raise EngineError(
                f"a step of {seqs} sequences, {tokens} tokens, to position {position}, with {rows} rows of logits "
                f"exceeds {limits}"
            )
