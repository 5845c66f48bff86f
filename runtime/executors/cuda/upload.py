"""Weights from a mapped file to the device."""

import ctypes

from ..mapped_file import MappedFile
from .driver import call
from .resources import Resources

_PIECE = 16 << 20


def upload(file: MappedFile, address: int, resources: Resources) -> None:
    """Copy a whole file to `address`, piece by piece through two pinned buffers: one fills while one is copied."""
    size = min(_PIECE, file.size)
    buffers = [(resources.pinned(size), resources.stream()) for _ in range(2)]
    for number, first in enumerate(range(0, file.size, size)):
        buffer, stream = buffers[number % 2]
        length = min(size, file.size - first)
        call("cuStreamSynchronize", stream)
        ctypes.memmove(buffer, file.address + first, length)
        call("cuMemcpyHtoDAsync", address + first, buffer, length, stream)
    for _, stream in buffers:
        call("cuStreamSynchronize", stream)
