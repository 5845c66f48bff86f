"""Arrays that native code reads and writes."""

from array import array


def zeros(typecode: str, length: int) -> array:
    return array(typecode, bytes(array(typecode).itemsize * length))


def address(values: array) -> int:
    return values.buffer_info()[0]
