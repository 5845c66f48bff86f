"""Runs an engine on an NVIDIA GPU through the driver alone: no PyTorch, no Triton, no CUDA toolkit.

Every address is fixed when the engine is opened, so that a step is a copy of its inputs and a list of launches whose
parameters stay where they are; only counts change. Steps that decode alone are captured as CUDA graphs.
"""

import ctypes
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ....errors import EngineError
from ....units import shown_size
from ...manifest import Manifest
from ..executor import Draw, Sample, SequenceSlice
from ..mapped_file import MappedFile
from .device import Device, find_device
from .driver import OutOfDeviceMemory, call
from .facts import cuda_facts
from .graphs import DecodeGraphs
from .inputs import StepInputs
from .launches import Counts, read_launches
from .prepared import Memories, PreparedLaunches
from .resources import Resources
from .sampler import HostSampler, is_greedy
from .upload import upload

if TYPE_CHECKING:
    import numpy as np


class CudaExecutor:
    """An open engine with room for `num_blocks[g]` KV blocks in cache group g. See `Executor` for the methods."""

    def __init__(self, path: Path, manifest: Manifest, num_blocks: Sequence[int], *, graphs: bool = True) -> None:
        facts, kv, limits = cuda_facts(manifest), manifest.kv_cache, manifest.limits
        table = read_launches(path / facts.launches)
        device = find_device()
        pools = [blocks * group.bytes_per_block for blocks, group in zip(num_blocks, kv.groups, strict=True)]
        self._vocab_size, self._rows = manifest.model.vocab_size, 0
        self._resources = resources = Resources(device)
        self._finalizer = weakref.finalize(self, resources.close)  # at exit too
        try:
            layout = StepInputs(limits, kv.block_size, len(kv.groups), manifest.model.long_rope_after)
            self._stream = resources.stream()
            self._weights = resources.memory(facts.weights_bytes)
            self._arena = resources.memory(facts.arena_bytes)
            caches = [resources.memory(nbytes) for nbytes in pools]
            self._device_inputs = resources.memory(layout.nbytes)
            host_inputs = resources.pinned(layout.nbytes)
            self._inputs = StepInputs(
                limits, kv.block_size, len(kv.groups), manifest.model.long_rope_after, host_inputs
            )
            self._host_tokens = resources.pinned(4 * limits.max_batch_size)
            memories = Memories(self._arena, self._weights, caches, self._device_inputs, self._inputs)
            self._launches = PreparedLaunches(table, path / facts.launches, memories, resources)
            _upload_weights(path / facts.weights, self._weights, resources)
        except OutOfDeviceMemory as error:
            self.close()
            raise EngineError(_too_small(device, facts.weights_bytes, facts.arena_bytes, sum(pools), error)) from None
        except BaseException:
            self.close()
            raise
        self._logits, self._tokens = self._arena + table.logits, self._arena + table.tokens
        self._graphs = DecodeGraphs(limits.max_batch_size, self._launches, self._stream, resources) if graphs else None
        self._sampler = HostSampler()

    def step(self, slices: Sequence[SequenceSlice], logits_rows: Sequence[int]) -> None:
        self._enter()
        self._rows = 0
        decodes = self._graphs is not None and len(logits_rows) == len(slices) == sum(s.stop - s.start for s in slices)
        padded = self._graphs.bucket(len(slices)) if self._graphs is not None and decodes else 0
        counts = self._inputs.fill(slices, logits_rows, padded)
        call("cuMemcpyHtoDAsync", self._device_inputs, self._inputs.address, self._inputs.nbytes, self._stream)
        self._run(counts, padded)
        rows = len(logits_rows)
        if rows:
            call("cuMemcpyDtoHAsync", self._host_tokens, self._tokens, 4 * rows, self._stream)
        call("cuStreamSynchronize", self._stream)
        self._rows = rows

    def sample(self, draws: Sequence[Draw]) -> list[Sample]:
        if any(not 0 <= draw.row < self._rows for draw in draws):
            raise EngineError(f"draws from rows {[draw.row for draw in draws]}, but the last step kept {self._rows}")
        likeliest = (ctypes.c_int32 * max(self._rows, 1)).from_address(self._host_tokens)
        taken = [is_greedy(draw) and likeliest[draw.row] >= 0 for draw in draws]
        logits = None if all(taken) else self.logits()
        samples = []
        for draw, is_taken in zip(draws, taken, strict=True):
            if is_taken:
                samples.append(Sample(likeliest[draw.row]))
            else:
                assert logits is not None
                samples.append(self._sampler.sample(logits[draw.row], draw))
        return samples

    def logits(self) -> "np.ndarray":
        import numpy as np

        self._enter()
        found = np.empty((self._rows, self._vocab_size), np.float32)
        if found.size:
            call("cuMemcpyDtoH", found.ctypes.data, self._logits, found.nbytes)
        return found

    def close(self) -> None:
        self._closed = True
        self._finalizer()

    def _run(self, counts: Counts, padded: int) -> None:
        if padded and self._graphs is not None:
            self._graphs.run(counts)
        else:
            self._launches.run(counts, self._stream)

    def _enter(self) -> None:
        if not self._finalizer.alive:
            raise EngineError("the engine was closed: open it again to use it")
        self._resources.enter()


def _upload_weights(path: Path, address: int, resources: Resources) -> None:
    weights = MappedFile(path)
    try:
        upload(weights, address, resources)
    finally:
        weights.close()


def _too_small(device: Device, weights: int, arena: int, caches: int, error: Exception) -> str:
    needed = (
        f"{shown_size(weights)} of weights, {shown_size(arena)} of activations and {shown_size(caches)} of KV cache"
    )
    return (
        f"{device.name} has no room for the engine ({error}): it needs {needed}, of {shown_size(device.memory)} of "
        "which others may have some; allow less with kv_cache_memory, or rebuild with a smaller max_num_tokens"
    )
