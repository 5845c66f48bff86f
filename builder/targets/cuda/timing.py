"""Which candidates are fastest on this machine's GPU: they are compiled, and run on memory laid out as the engine's."""

import hashlib
import json
import statistics
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....errors import BuildError
from ....runtime.executors.cuda import launches as table
from ....runtime.executors.cuda.device import Device
from ....runtime.executors.cuda.driver import OutOfDeviceMemory, attribute, call
from ....runtime.executors.cuda.inputs import StepInputs
from ....runtime.executors.cuda.launches import Count
from ....runtime.executors.cuda.prepared import Memories, PreparedLaunches
from ....runtime.executors.cuda.resources import Resources
from ....runtime.executors.executor import SequenceSlice
from ....runtime.manifest import Limits
from ....units import shown_size
from ...lowering.program import Program
from .compile import CUBIN, FACTS, Compilation
from .schedule import groups_of, items_of
from .source.call import Candidate, Choice, Context, Picks
from .specialize import Specialization, specialize
from .timing_cache import Timing, TimingCache

_WARM, _TIMES = 3, 15
_POOL_BLOCKS = 64  # of a cache group, which sequences share: what lies there does not matter
_LONGEST, _DECODES = (
    1024,
    16,
)  # tokens of a step or a context, and sequences of a step that decodes, at most


@dataclass(frozen=True)
class _Specialized:
    """A candidate, by the keys of its kernels, as the table of launches has it."""

    title: str
    kernels: dict[str, Specialization]
    launches: tuple[table.Launch, ...]


def timed_picks(
    program: Program,
    context: Context,
    device: Device | None,
    compiler: str,
    cache: TimingCache,
    start_compiling: Callable[[Mapping[str, Specialization]], Compilation],
) -> Picks:
    """What is fastest of every choice, by the cache, or timed now; without a device, by the cache alone.

    Raises BuildError where the device has no room for the engine, ToolchainError where a candidate does not compile.
    """
    name, driver = (device.name, device.shown_driver) if device else (None, None)
    choices = {(item.shape, item.bucket): item for item in _choices(program, context)}
    candidates = {key: _candidates(choice, program, context, compiler) for key, choice in choices.items()}
    digests = {key: _digest(found) for key, found in candidates.items()}
    timed: dict[tuple[str, str], tuple[str, str]] = {}
    for key in choices:
        if (timing := cache.find(digests[key], *key, name, driver)) is not None:
            timed[key] = timing.best, f"{timing.summary}, on {timing.gpu} before"
    pending = [key for key in choices if key not in timed and len(choices[key].candidates) > 1]
    if device is None or not pending:
        return Picks(context.sm, timed)
    kernels = {key: kernel for found in pending for one in candidates[found] for key, kernel in one.kernels.items()}
    folders = start_compiling(kernels).wait()
    with _bench(program, context, device) as bench:
        for key in pending:
            microseconds = bench.time(choices[key], candidates[key], folders)
            timing = Timing(device.name, device.shown_driver, digests[key], *key, microseconds)
            cache.add(timing)
            timed[key] = timing.best, f"{timing.summary}, on {device.name}"
    cache.save()
    return Picks(context.sm, timed)


def _choices(program: Program, context: Context) -> Iterator[Choice]:
    for node in program.calls:
        for item in items_of(node, context):
            if isinstance(item, Choice):
                yield item


def _candidates(choice: Choice, program: Program, context: Context, compiler: str) -> list[_Specialized]:
    return [_specialized(candidate, program, context, compiler) for candidate in choice.candidates]


def _specialized(candidate: Candidate, program: Program, context: Context, compiler: str) -> _Specialized:
    kernels: dict[str, Specialization] = {}
    launches = []
    for launch in candidate.launches:
        kernel, arguments = specialize(launch, context, groups_of(program))
        key = kernel.key(compiler)
        kernels[key] = kernel
        number = list(kernels).index(key)
        launches.append(table.Launch(candidate.title, number, launch.grid, tuple(arguments), None))
    return _Specialized(candidate.title, kernels, tuple(launches))


def _digest(candidates: list[_Specialized]) -> str:
    text = json.dumps([[one.title, list(one.kernels)] for one in candidates])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class _Bench:
    """Memory as the engine has it, with steps of any size, and a clock: events of a stream."""

    def __init__(self, program: Program, context: Context, device: Device, resources: Resources) -> None:
        self._context, self._resources = context, resources
        self._groups = range(len(program.groups))
        limits = Limits(
            max_batch_size=context.max_batch_size,
            max_num_tokens=context.max_num_tokens,
            max_seq_len=context.max_seq_len,
        )
        self._inputs = StepInputs(limits, context.block_size, len(program.groups), None, resources.pinned)
        caches = [resources.memory(_POOL_BLOCKS * context.block_bytes(group.layers[0])) for group in program.groups]
        arena, weights = resources.memory(program.arena_bytes), resources.memory(program.weights_bytes)
        device_inputs = resources.memory(self._inputs.nbytes)
        self._memories = Memories(arena, weights, caches, device_inputs, self._inputs)
        self._flush_bytes = 2 * attribute("L2_CACHE_SIZE", device.handle)
        self._flush = resources.memory(self._flush_bytes)
        self._most_shared = attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", device.handle)
        self._stream = resources.stream()
        self._begin, self._end = resources.event(timed=True), resources.event(timed=True)

    def time(self, choice: Choice, candidates: list[_Specialized], folders: Mapping[str, Path]) -> dict[str, float]:
        """Microseconds of each candidate that a block has the shared memory for, by title."""
        counts = self._fill(choice)
        found = {}
        for candidate in candidates:
            kernels = [_kernel(folders[key], kernel) for key, kernel in candidate.kernels.items()]
            if max(kernel.shared for kernel in kernels) <= self._most_shared:
                tabled = table.LaunchTable(tuple(kernels), candidate.launches, 0, 0)
                found[candidate.title] = self._median(
                    PreparedLaunches(tabled, Path(), self._memories, self._resources), counts
                )
        if not found:
            raise BuildError(
                f"no kernel of {choice.shape} fits the {self._most_shared} bytes of shared memory of a block"
            )
        return found

    def _median(self, launches: PreparedLaunches, counts: table.Counts) -> float:
        for _ in range(_WARM):
            launches.run(counts, self._stream)
        times = []
        for _ in range(_TIMES):
            call("cuMemsetD8Async", self._flush, 0, self._flush_bytes, self._stream)  # weights come from memory
            call("cuEventRecord", self._begin, self._stream)
            launches.run(counts, self._stream)
            call("cuEventRecord", self._end, self._stream)
            call("cuEventSynchronize", self._end)
            times.append(1000 * call("cuEventElapsedTime", self._begin, self._end))
        return round(statistics.median(times), 3)

    def _fill(self, choice: Choice) -> dict[Count, int]:
        """A step of the choice's largest size, if that is not too large, filled in and copied to the device."""
        slices = self._slices(choice)
        rows = range(min(len(slices), self._context.max_batch_size))
        counts = self._inputs.fill(slices, rows)
        call("cuMemcpyHtoDAsync", self._memories.inputs, self._inputs.address, self._inputs.nbytes, self._stream)
        call("cuStreamSynchronize", self._stream)
        return counts

    def _slices(self, choice: Choice) -> list[SequenceSlice]:
        context, when = self._context, choice.when
        if when is None or when.count is Count.QUERIES:
            if when is not None and when.most == 1:
                length = min(context.max_seq_len, _LONGEST)
                return [self._slice(n, length - 1, length) for n in range(min(context.max_batch_size, _DECODES))]
            return [self._slice(0, 0, min(context.max_num_tokens, context.max_seq_len, _LONGEST))]
        most = context.most(when.count)
        size = min(most, max(when.least, _LONGEST) if when.most is None else when.most)
        sequences = min(size, context.max_batch_size)
        ends = [min(size * (n + 1) // sequences - size * n // sequences, context.max_seq_len) for n in range(sequences)]
        return [self._slice(n, 0, end) for n, end in enumerate(ends)]

    def _slice(self, number: int, start: int, stop: int) -> SequenceSlice:
        columns = -(-stop // self._context.block_size)
        blocks = array("i", [(number * columns + n) % _POOL_BLOCKS for n in range(columns)])
        return SequenceSlice(array("i", bytes(4 * stop)), start, stop, [blocks] * len(self._groups))


@contextmanager
def _bench(program: Program, context: Context, device: Device) -> Iterator[_Bench]:
    resources = Resources(device)
    try:
        yield _Bench(program, context, device, resources)
    except OutOfDeviceMemory as error:
        needed = f"{shown_size(program.weights_bytes)} of weights and {shown_size(program.arena_bytes)} of activations"
        raise BuildError(
            f"{device.name} has no room to time kernels ({error}): they need {needed}; free some of its "
            f"{shown_size(device.memory)}, or add --tactics table, which times nothing"
        ) from None
    finally:
        resources.close()


def _kernel(folder: Path, kernel: Specialization) -> table.Kernel:
    facts: dict[str, Any] = json.loads((folder / FACTS).read_text())
    return table.Kernel(
        file=str(folder / CUBIN), source=kernel.source, constants={}, signature=kernel.signature, **facts
    )
