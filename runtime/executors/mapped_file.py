"""A file in memory without a copy."""

import contextlib
import ctypes
import mmap
from pathlib import Path

from ...errors import EngineError

_POPULATE_READ = 22  # MADV_POPULATE_READ of Linux 5.14


class MappedFile:
    """A whole file mapped read-only; its pages are shared with every process that maps it, and prefetched."""

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        except (OSError, ValueError) as error:  # ValueError: an empty file
            raise EngineError(f"{path} cannot be mapped: {error}") from None
        with contextlib.suppress(OSError):
            self._map.madvise(mmap.MADV_WILLNEED)
        self.size = len(self._map)
        self.address = _address(self._map)

    def read_ahead(self) -> None:
        """Have all pages in memory, and mapped, when this returns; where the kernel does not know how, do nothing."""
        with contextlib.suppress(OSError):
            self._map.madvise(_POPULATE_READ)

    def close(self) -> None:
        """Unmap. The address must no longer be used."""
        self._map.close()


def _address(buffer: mmap.mmap) -> int:
    """Where a read-only buffer begins (`ctypes.from_buffer` takes writable ones alone)."""
    view = (ctypes.c_void_p * 16)()  # a Py_buffer, whose first field is the address
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(buffer), view, 0)
    address = view[0]
    ctypes.pythonapi.PyBuffer_Release(view)
    assert address is not None
    return address
