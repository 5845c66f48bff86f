"""Numbers of a byte: int8, and FP8 E4M3 by its bits, for which GPUs before compute capability 8.9 have no instruction.

E4M3 is that of Micikevicius et al., 2022: 1-4-3, largest number 448.
"""

import triton
import triton.language as tl

from .elementary import nearest


@triton.jit
def e4m3_to_float(byte):
    """uint8 -> float32. The bits of a float16 with the same fields are the number over 2^8; exact, NaN excepted."""
    bits = byte.to(tl.uint16)
    half = ((bits & 0x80) << 8) | ((bits & 0x7F) << 7)
    return half.to(tl.float16, bitcast=True).to(tl.float32) * 256.0


@triton.jit
def float_to_e4m3(x):
    """float32 -> uint8: the nearest number, ties to even, at most 448."""
    size = tl.minimum(tl.abs(x), 448.0)
    bits = size.to(tl.uint32, bitcast=True)
    normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - (120 << 3)
    # Below 2^-6 numbers are multiples of 2^-9, which is the last bit of floats at 2^14.
    small = (size + 16384.0).to(tl.uint32, bitcast=True) - 0x46800000
    code = tl.where(size < 0.015625, small, normal)
    sign = (x.to(tl.uint32, bitcast=True) >> 24) & 0x80
    return (code | sign).to(tl.uint8)


@triton.jit
def float_to_int8(x):
    """float32 -> int8: the nearest whole number, ties to even, within [-128, 127]."""
    return nearest(tl.minimum(tl.maximum(x, -128.0), 127.0)).to(tl.int8)
