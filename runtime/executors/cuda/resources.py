"""Memory, modules and streams of a device, given back together."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .device import Device
from .driver import DriverError, call

_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING


class Resources:
    """What was taken from a device in its primary context. `close` gives all back, the last first.

    A context that a fault has broken gives nothing back itself; then all goes with the context, which this one's
    release ends.
    """

    def __init__(self, device: Device) -> None:
        self._undo: list[Callable[[], object]] = []
        self._streams: list[Any] = []
        self.context = call("cuDevicePrimaryCtxRetain", device.handle)
        self._undo.append(lambda: call("cuDevicePrimaryCtxRelease", device.handle))
        try:
            self.enter()
        except BaseException:
            self.close()
            raise

    def enter(self) -> None:
        """Make the context this thread's."""
        call("cuCtxSetCurrent", self.context)

    def free(self) -> int:
        """Bytes of the device that nobody has."""
        return int(call("cuMemGetInfo")[0])

    def memory(self, nbytes: int) -> int:
        """The address of device memory. Raises OutOfDeviceMemory."""
        address = int(call("cuMemAlloc", max(nbytes, 1)))
        self._undo.append(lambda: call("cuMemFree", address))
        return address

    def pinned(self, nbytes: int) -> int:
        """The address of host memory that the device copies from and to by itself."""
        address = int(call("cuMemAllocHost", max(nbytes, 1)))
        self._undo.append(lambda: call("cuMemFreeHost", address))
        return address

    def stream(self) -> Any:
        """A stream."""
        stream = call("cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING
        self._streams.append(stream)
        self._undo.append(lambda: call("cuStreamDestroy", stream))
        return stream

    def event(self, *, timed: bool = False) -> Any:
        """An event, which nothing has been recorded in; `timed`: it notes when it is reached."""
        event = call("cuEventCreate", 0 if timed else _NO_TIMING)
        self._undo.append(lambda: call("cuEventDestroy", event))
        return event

    def module(self, image: bytes) -> Any:
        """A loaded cubin."""
        module = call("cuModuleLoadData", image)
        self._undo.append(lambda: call("cuModuleUnload", module))
        return module

    def also(self, undo: Callable[[], object]) -> None:
        """Something else to give back."""
        self._undo.append(undo)

    def close(self) -> None:
        """Give everything back, when the device has done what it was told; a second call does nothing."""
        if self._undo:
            with suppress(DriverError):
                self.enter()
        while self._streams:
            with suppress(DriverError):
                call("cuStreamSynchronize", self._streams.pop())
        while self._undo:
            with suppress(DriverError):
                self._undo.pop()()
