"""Runs an engine on an NVIDIA GPU through the driver alone: no PyTorch, no Triton, no CUDA toolkit.

Every address is fixed when the engine is opened, so that a step is a copy of its inputs and a list of launches whose
parameters stay where they are; only counts change. Steps that decode alone are captured as CUDA graphs.
"""

import ctypes
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ....errors import EngineError
from ....units import shown_size
from ...manifest import Manifest
from ...threads import physical_cores
from ..executor import Draw, Sample, SequenceSlice
from ..mapped_file import MappedFile
from ..sampler import Sampler
from .device import Device, find_device
from .driver import DriverError, OutOfDeviceMemory, call
from .facts import CudaFacts, cuda_facts
from .graphs import DecodeGraphs
from .launches import read_launches
from .pinned_inputs import PinnedInputs
from .prepared import Memories, PreparedLaunches
from .resources import Resources
from .rows import HostRows, is_greedy
from .upload import upload

if TYPE_CHECKING:
    import numpy as np


class CudaExecutor:
    """An open engine with room for `num_blocks[g]` KV blocks in cache group g. See `Executor` for the methods.

    `step` returns when the device has been told what to do. Inputs are filled into two buffers in turn, so that a step
    may be filled in while the device works on the one before; `sample` and `logits` wait. What goes wrong on the device
    meanwhile is raised by whichever call waits first. `threads` draw tokens.
    """

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        num_blocks: Sequence[int],
        threads: int | None = None,
        *,
        graphs: bool = True,
    ) -> None:
        facts, limits = cuda_facts(manifest), manifest.limits
        table = read_launches(path / facts.launches)
        device = find_device()
        pools = [
            blocks * group.bytes_per_block for blocks, group in zip(num_blocks, manifest.kv_cache.groups, strict=True)
        ]
        self._vocab_size, self._num_rows = manifest.model.vocab_size, 0
        self._resources = resources = Resources(device)
        self._finalizer = weakref.finalize(self, resources.close)  # at exit too
        free = 0
        try:
            free = resources.free()
            self._stream = resources.stream()
            self._weights = resources.memory(facts.weights_bytes)
            self._arena = resources.memory(facts.arena_bytes)
            caches = [resources.memory(nbytes) for nbytes in pools]
            self._inputs = [PinnedInputs(manifest, resources) for _ in range(2)]
            self._device_inputs = resources.memory(self._inputs[0].arrays.nbytes)
            self._host_tokens = resources.pinned(4 * limits.max_logits_rows)
            self._rows = HostRows(limits.max_logits_rows, self._vocab_size, resources)
            memories = Memories(self._arena, self._weights, caches, self._device_inputs, self._inputs[0].arrays)
            self._launches = PreparedLaunches(table, path / facts.launches, memories, resources, facts.tensorrt)
            _upload_weights(path / facts.weights, self._weights, resources)
            threads = physical_cores() if threads is None else threads
            self._sampler = Sampler(path / facts.sampler, threads, limits.max_logits_rows, self._vocab_size)
        except OutOfDeviceMemory as error:
            self.close()
            raise EngineError(_too_small(device, facts, sum(pools), free, error)) from None
        except BaseException:
            self.close()
            raise
        self._logits, self._tokens = self._arena + table.logits, self._arena + table.tokens
        self._graphs = DecodeGraphs(limits.max_batch_size, self._launches, self._stream, resources) if graphs else None

    def step(self, slices: Sequence[SequenceSlice], logits_rows: Sequence[int]) -> None:
        self._enter()
        decodes = self._graphs is not None and len(logits_rows) == len(slices) == sum(s.stop - s.start for s in slices)
        padded = self._graphs.bucket(len(slices)) if self._graphs is not None and decodes else 0
        self._launch(slices, logits_rows, padded)

    def sample(self, draws: Sequence[Draw]) -> list[Sample]:
        if any(not 0 <= draw.row < self._num_rows for draw in draws):
            raise EngineError(
                f"draws from rows {[draw.row for draw in draws]}, but the last step kept {self._num_rows}"
            )
        self._enter()
        self._inputs[0].wait()
        likeliest = (ctypes.c_int32 * max(self._num_rows, 1)).from_address(self._host_tokens)
        others = [draw for draw in draws if not is_greedy(draw) or likeliest[draw.row] < 0]
        if not others:
            return [Sample(likeliest[draw.row]) for draw in draws]
        self._rows.copy((draw.row for draw in others), self._logits, self._stream)
        drawn = iter(self._sampler.sample(self._rows.address, self._num_rows, others))
        left = {id(draw) for draw in others}
        return [next(drawn) if id(draw) in left else Sample(likeliest[draw.row]) for draw in draws]

    def logits(self) -> "np.ndarray":
        import numpy as np

        self._enter()
        self._rows.copy(range(self._num_rows), self._logits, self._stream)
        values = (ctypes.c_float * (self._num_rows * self._vocab_size)).from_address(self._rows.address)
        return np.array(values, np.float32).reshape(self._num_rows, self._vocab_size)

    def warm_up(self) -> None:
        """Capture the graph of every batch size that decodes, and run each once, on sequences without context."""
        self._enter()
        for size in reversed(self._graphs.sizes if self._graphs is not None else ()):
            self._launch([], [], size)
        self._num_rows = 0
        call("cuStreamSynchronize", self._stream)

    def close(self) -> None:
        if hasattr(self, "_sampler"):
            self._sampler.close()
        self._finalizer()

    def _launch(self, slices: Sequence[SequenceSlice], logits_rows: Sequence[int], padded: int) -> None:
        """Hand a step to the device. Of a buffer, what was told last must have been done before it is filled again."""
        self._num_rows = 0
        self._inputs.reverse()
        inputs = self._inputs[0]
        inputs.wait()
        try:
            counts = inputs.arrays.fill(slices, logits_rows, padded)
            nbytes = inputs.arrays.nbytes
            call("cuMemcpyHtoDAsync", self._device_inputs, inputs.arrays.address, nbytes, self._stream)
            if padded and self._graphs is not None:
                self._graphs.run(counts)
            else:
                self._launches.run(counts, self._stream)
            if logits_rows:
                call("cuMemcpyDtoHAsync", self._host_tokens, self._tokens, 4 * len(logits_rows), self._stream)
            inputs.used(self._stream)
        except BaseException:
            with suppress(DriverError):  # so that nothing reads the buffer any more
                call("cuStreamSynchronize", self._stream)
            raise
        self._num_rows = len(logits_rows)

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


def _too_small(device: Device, facts: CudaFacts, caches: int, free: int, error: Exception) -> str:
    weights, arena = facts.weights_bytes + facts.plans_bytes, facts.arena_bytes
    parts = f"{shown_size(weights)} of weights, {shown_size(arena)} of activations and {shown_size(caches)} of KV cache"
    return (
        f"{device.name} has no room for the engine ({error}): it needs {shown_size(weights + arena + caches)}: {parts}"
        f"; {shown_size(free)} of {shown_size(device.memory)} were free; end what else uses the GPU, give the KV cache "
        "less with memory_utilization or kv_cache_memory, or rebuild with a smaller max_num_tokens"
    )
