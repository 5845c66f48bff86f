"""GGUF's block types, dequantized as ggml's source says: block structs of ggml-common.h, arithmetic of ggml-quants.c.

The references work on one block, one number at a time, in float32.
"""

import struct
from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from hypothesis import given
from hypothesis import strategies as st

from enginesmith.checkpoint.gguf_file import GgufTensor

F32 = np.float32


def half(data: bytes, at: int) -> F32:
    return F32(struct.unpack_from("<e", data, at)[0])


def nibbles(data: bytes) -> list[int]:
    """Low halves of all bytes, then high ones."""
    return [byte & 15 for byte in data] + [byte >> 4 for byte in data]


def fifth_bits(data: bytes) -> list[int]:
    (bits,) = struct.unpack("<I", data)
    return [(bits >> at & 1) << 4 for at in range(32)]


def q4_0(block: bytes) -> list[F32]:
    """half d; nibble qs[16]: d * (q - 8)."""
    return [half(block, 0) * F32(q - 8) for q in nibbles(block[2:])]


def q4_1(block: bytes) -> list[F32]:
    """half d, m; nibble qs[16]: d * q + m."""
    return [half(block, 0) * F32(q) + half(block, 2) for q in nibbles(block[4:])]


def q5_0(block: bytes) -> list[F32]:
    """half d; qh[4]; nibble qs[16]: d * (q - 16)."""
    return [
        half(block, 0) * F32((low | high) - 16)
        for low, high in zip(nibbles(block[6:]), fifth_bits(block[2:6]), strict=True)
    ]


def q5_1(block: bytes) -> list[F32]:
    """half d, m; qh[4]; nibble qs[16]: d * q + m."""
    return [
        half(block, 0) * F32(low | high) + half(block, 2)
        for low, high in zip(nibbles(block[8:]), fifth_bits(block[4:8]), strict=True)
    ]


def q8_0(block: bytes) -> list[F32]:
    """half d; int8 qs[32]: d * q."""
    return [half(block, 0) * F32(q) for q in struct.unpack("<32b", block[2:])]


def q2_k(block: bytes) -> list[F32]:
    """scales[16] (scale low, minimum high nibble); 2-bit qs[64]; half d, dmin: (d * s) * q - dmin * m."""
    scales, qs, d, least = block[:16], block[16:80], half(block, 80), half(block, 82)
    values = []
    for at in range(256):
        chunk, shift, column = at // 128, at % 128 // 32 * 2, at % 32
        q = qs[chunk * 32 + column] >> shift & 3
        scale = scales[at // 16]
        values.append((d * F32(scale & 15)) * F32(q) - least * F32(scale >> 4))
    return values


def q3_k(block: bytes) -> list[F32]:
    """hmask[32]; 2-bit qs[64]; 6-bit scales[12]; half d: d * (s - 32) * (q - 4 unless its mask bit is set)."""
    mask, qs, packed, d = block[:32], block[32:96], block[96:108], half(block, 108)
    values = []
    for at in range(256):
        group = at // 16
        low = packed[group % 8] >> (4 if group >= 8 else 0) & 15
        high = packed[8 + group % 4] >> (group // 4 * 2) & 3
        q = qs[at // 128 * 32 + at % 32] >> (at % 128 // 32 * 2) & 3
        q -= 0 if mask[at % 32] >> (at // 32) & 1 else 4
        values.append((d * F32((low | high << 4) - 32)) * F32(q))
    return values


def scale_and_minimum(packed: bytes, group: int) -> tuple[int, int]:
    """get_scale_min_k4: eight pairs of 6 bits in 12 bytes."""
    if group < 4:
        return packed[group] & 63, packed[group + 4] & 63
    return (
        packed[group + 4] & 15 | packed[group - 4] >> 6 << 4,
        packed[group + 4] >> 4 | packed[group] >> 6 << 4,
    )


def q4_k(block: bytes) -> list[F32]:
    """half d, dmin; 6-bit scales[12]; nibble qs[128]: (d * s) * q - dmin * m."""
    d, least, packed, qs = half(block, 0), half(block, 2), block[4:16], block[16:]
    values = []
    for at in range(256):
        scale, minimum = scale_and_minimum(packed, at // 32)
        q = qs[at // 64 * 32 + at % 32] >> (at % 64 // 32 * 4) & 15
        values.append((d * F32(scale)) * F32(q) - least * F32(minimum))
    return values


def q5_k(block: bytes) -> list[F32]:
    """half d, dmin; 6-bit scales[12]; qh[32]; nibble qs[128]: as Q4_K with a fifth bit."""
    d, least, packed, high, qs = half(block, 0), half(block, 2), block[4:16], block[16:48], block[48:]
    values = []
    for at in range(256):
        scale, minimum = scale_and_minimum(packed, at // 32)
        q = qs[at // 64 * 32 + at % 32] >> (at % 64 // 32 * 4) & 15 | (high[at % 32] >> at // 32 & 1) << 4
        values.append((d * F32(scale)) * F32(q) - least * F32(minimum))
    return values


def q6_k(block: bytes) -> list[F32]:
    """ql[128]; qh[64]; int8 scales[16]; half d: (d * s) * (q - 32)."""
    low, high, scales, d = block[:128], block[128:192], struct.unpack("<16b", block[192:208]), half(block, 208)
    values = []
    for at in range(256):
        chunk, quarter, column = at // 128, at % 128 // 32, at % 32
        nibble = low[chunk * 64 + quarter % 2 * 32 + column] >> (quarter // 2 * 4) & 15
        q = nibble | (high[chunk * 32 + column] >> (2 * quarter) & 3) << 4
        values.append((d * F32(scales[at // 16])) * F32(q - 32))
    return values


def f32(block: bytes) -> Sequence[F32]:
    return [F32(struct.unpack("<f", block)[0])]


def f16(block: bytes) -> Sequence[F32]:
    return [half(block, 0)]


def bf16(block: bytes) -> Sequence[F32]:
    return [F32(np.frombuffer(block, ml_dtypes.bfloat16)[0])]


REFERENCES: dict[str, Callable[[bytes], Sequence[F32]]] = {
    "F32": f32,
    "F16": f16,
    "BF16": bf16,
    "Q4_0": q4_0,
    "Q4_1": q4_1,
    "Q5_0": q5_0,
    "Q5_1": q5_1,
    "Q8_0": q8_0,
    "Q2_K": q2_k,
    "Q3_K": q3_k,
    "Q4_K": q4_k,
    "Q5_K": q5_k,
    "Q6_K": q6_k,
}


@pytest.mark.parametrize("name", REFERENCES)
@given(data=st.data())
def test_blocks_are_dequantized_as_ggml_does(name: str, data: st.DataObject) -> None:
    """Bit for bit, subnormal and infinite scales included."""
    kind = GGMLQuantizationType[name]
    size, nbytes = GGML_QUANT_SIZES[kind]
    rows, blocks = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    raw = data.draw(st.binary(min_size=rows * blocks * nbytes, max_size=rows * blocks * nbytes))
    stored = np.frombuffer(raw, np.uint8).reshape(rows, blocks * nbytes)
    tensor = GgufTensor("w", (rows, blocks * size), int(kind), stored)
    with np.errstate(all="ignore"):
        found = tensor.dequantize()
        cut = [raw[at : at + nbytes] for at in range(0, len(raw), nbytes)]
        expected = np.array([REFERENCES[name](block) for block in cut], F32).reshape(rows, -1)
    assert found.dtype == F32
    assert found.shape == tensor.shape
    np.testing.assert_array_equal(found, expected)  # NaN equals NaN
    same = np.isnan(expected) | (np.signbit(found) == np.signbit(expected))
    assert same.all(), "the sign of a zero"
