"""CUDA graphs of steps that decode: one for each of some batch sizes, captured when the first step needs it."""

import logging
from contextlib import suppress
from typing import Any

from .driver import DriverError, OutOfDeviceMemory, call, constant
from .launches import Count, Counts
from .prepared import PreparedLaunches
from .resources import Resources
from .segments import NotCaptured

log = logging.getLogger(__name__)


def buckets(max_batch_size: int) -> list[int]:
    """The batch sizes that have a graph: 1, 2, 4, 8, then multiples of 8, and the largest there is."""
    sizes = [1, 2, 4, *range(8, max_batch_size, 8)]
    return [*(size for size in sizes if size < max_batch_size), max_batch_size]


class DecodeGraphs:
    """Graphs by batch size. A smaller batch is padded to the next size, with sequences that have no context."""

    def __init__(self, max_batch_size: int, launches: PreparedLaunches, stream: Any, resources: Resources) -> None:
        self.sizes = buckets(max_batch_size)
        self._launches, self._stream, self._resources = launches, stream, resources
        self._graphs: dict[int, Any] = {}
        self._has_room = True

    def bucket(self, sequences: int) -> int:
        """The size that a batch is padded to; 0 where there are no graphs."""
        return next((size for size in self.sizes if size >= sequences), 0) if self._has_room else 0

    def run(self, counts: Counts) -> None:
        """A step of the counts of a size; without a graph, where the device has no room for one."""
        size = counts[Count.SEQUENCES]
        if size not in self._graphs and self._has_room:
            try:
                self._graphs[size] = self._capture(counts)
            except (OutOfDeviceMemory, NotCaptured) as error:
                self._has_room = False
                log.warning("%s: decoding goes on without a CUDA graph for %d requests", error, size)
        if size in self._graphs:
            call("cuGraphLaunch", self._graphs[size], self._stream)
        else:
            self._launches.run(counts, self._stream)

    def _capture(self, counts: Counts) -> Any:
        self._launches.before_capture(counts, self._stream)
        mode = constant("CUstreamCaptureMode", "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL")
        call("cuStreamBeginCapture", self._stream, mode)
        try:
            self._launches.run(counts, self._stream)
        except BaseException:
            with suppress(DriverError):  # it is invalid, but ends
                graph = call("cuStreamEndCapture", self._stream)
                if int(graph):
                    call("cuGraphDestroy", graph)
            raise
        graph = call("cuStreamEndCapture", self._stream)
        try:
            ready = call("cuGraphInstantiate", graph, 0)
        finally:
            call("cuGraphDestroy", graph)
        self._resources.also(lambda: call("cuGraphExecDestroy", ready))
        return ready
