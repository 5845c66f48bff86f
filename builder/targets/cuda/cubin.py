"""What a cubin, an ELF file with one kernel, says of it in its section .nv.info: numbers of attributes by symbol."""

import struct

_REGISTERS = 0x2F  # EIATTR_REGCOUNT
_STACK = 0x12  # EIATTR_MIN_STACK_SIZE
_OF_SYMBOL = 0x04  # the form of an entry that has a size, and then four bytes of symbol and the value


def registers(cubin: bytes) -> int:
    """Registers of a thread."""
    return max(_values(cubin, _REGISTERS), default=0)


def local_bytes(cubin: bytes) -> int:
    """Bytes of memory that a thread has beside its registers: what was spilled, and arrays."""
    return max(_values(cubin, _STACK), default=0)


def _values(cubin: bytes, wanted: int) -> list[int]:
    data, at, found = _section(cubin, b".nv.info"), 0, []
    while at + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form != _OF_SYMBOL:
            continue
        if attribute == wanted:
            found.append(struct.unpack_from("<I", data, at + 4)[0])
        at += size
    return found


def _section(cubin: bytes, wanted: bytes) -> bytes:
    """The content of a section of a 64-bit little-endian ELF file; nothing, where it has none of that name."""
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, number, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + i * size) for i in range(number)]
    text = headers[names][4]
    for name, _, _, _, offset, length in headers:
        if cubin[text + name : cubin.index(b"\0", text + name)] == wanted:
            return cubin[offset : offset + length]
    return b""
