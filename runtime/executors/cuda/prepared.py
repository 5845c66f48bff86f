"""The launches of an engine with all that does not change from step to step: functions, addresses, parameters."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....errors import EngineError
from .driver import call, constant
from .inputs import StepInputs
from .launches import MAX_GRID, Argument, Count, Counts, Home, Launch, LaunchTable, SegmentRun
from .resources import Resources
from .segments import Segment, open_segments

_PLAIN_SHARED = 48 << 10  # bytes of shared memory that a kernel may have unasked
_SCRATCH = 2  # pointers that Triton adds to a kernel's parameters: null where it needs no scratch memory


@dataclass(frozen=True)
class Memories:
    """Where the memories of an engine begin in the device, and how its inputs lie."""

    arena: int
    weights: int
    caches: Sequence[int]
    inputs: int
    layout: StepInputs

    def address(self, argument: Argument) -> int:
        """The address that an argument is; of a pointer."""
        match argument.home:
            case Home.ARENA:
                base = self.arena
            case Home.WEIGHTS:
                base = self.weights
            case Home.CACHE:
                base = self.caches[argument.group]
            case _:
                base = self.inputs + self.layout.offset(argument.name, argument.group)
        return base + argument.offset


class PreparedLaunches:
    """A table's kernels, loaded, its launches, and its segments, whose plans `tensorrt` made ("package version").

    Raises EngineError where a file is missing or has no such kernel.
    """

    def __init__(
        self, table: LaunchTable, path: Path, memories: Memories, resources: Resources, tensorrt: str = ""
    ) -> None:
        self._counts = (ctypes.c_uint64 * len(Count))()  # read as int32 by kernels; 8 bytes each
        self._slots = {count: ctypes.addressof(self._counts) + 8 * n for n, count in enumerate(Count)}
        self._numbers = {count: n for n, count in enumerate(Count)}
        functions = [
            _load(path.parent / kernel.file, kernel.entry, kernel.shared, resources) for kernel in table.kernels
        ]
        self._kept: list[Any] = []  # what parameters point to
        self._launches = []
        runs = [launch for launch in table.launches if isinstance(launch, SegmentRun)]
        self._segments = open_segments(runs, tensorrt, path.parent, memories.address, resources)
        segments = iter(self._segments)
        for launch in table.launches:
            if isinstance(launch, SegmentRun):
                self._launches.append(next(segments))
                continue
            kernel = table.kernels[launch.kernel]
            parameters = self._parameters(launch, memories)
            self._launches.append((launch, functions[launch.kernel], kernel.threads, kernel.shared, parameters))

    def run(self, counts: Counts, stream: Any) -> None:
        """Launch, or capture, all that a step of these counts has."""
        for count, number in self._numbers.items():
            self._counts[number] = counts[count]
        for item in self._launches:
            if isinstance(item, Segment):
                item.run(counts, stream)
                continue
            launch, function, threads, shared, parameters = item
            if launch.when is not None and not launch.when.holds(counts):
                continue
            grid = launch.size(counts)
            if not all(grid):
                continue
            if any(size > most for size, most in zip(grid, MAX_GRID, strict=True)):
                raise EngineError(f"{launch.node}: a grid of {grid} is more than the GPU takes, {MAX_GRID}")
            call("cuLaunchKernel", function, *grid, threads, 1, 1, shared, stream, parameters, 0)

    def before_capture(self, counts: Counts, stream: Any) -> None:
        """What TensorRT needs before it is captured: to have run in the same shapes, on whatever the arena holds.

        Raises NotCaptured.
        """
        for segment in self._segments:
            segment.run(counts, stream)
            segment.require_capturable(stream)

    def _parameters(self, launch: Launch, memories: Memories) -> int:
        """The address of an array of the addresses of a launch's parameters."""
        values = (ctypes.c_uint64 * (len(launch.arguments) + _SCRATCH))()
        pointers = (ctypes.c_void_p * len(values))()
        for number, argument in enumerate(launch.arguments):
            if argument.home is Home.COUNT:
                pointers[number] = self._slots[Count(argument.name)]
                continue
            values[number] = memories.address(argument)
            pointers[number] = ctypes.addressof(values) + 8 * number
        for number in range(len(launch.arguments), len(values)):
            pointers[number] = ctypes.addressof(values) + 8 * number
        self._kept += [values, pointers]
        return ctypes.addressof(pointers)


def _load(path: Path, entry: str, shared: int, resources: Resources) -> Any:
    """A kernel of a cubin."""
    try:
        image = path.read_bytes()
    except OSError as error:
        raise EngineError(f"{path} cannot be read: {error}; copy the engine again or rebuild it") from None
    function = call("cuModuleGetFunction", resources.module(image), entry.encode())
    if shared > _PLAIN_SHARED:
        name = constant("CUfunction_attribute", "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES")
        call("cuFuncSetAttribute", function, name, shared)
    return function
