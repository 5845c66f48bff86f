"""The bytes of weight panels; plugins/linear/cpu/weights.h describes them and reads them.

A panel holds 32 outputs. Every function takes whole panels, outputs past the end of a weight being zeros, and writes
into `out`, uint8 [P, bytes of a panel].
"""

import numpy as np

from ...cpu.isa import Isa

PANEL = 32
HALF = 16


def chunk_size(isa: Isa, group: int) -> int:
    """Integer groups of `group` elements along K are padded to whole chunks of this many."""
    return 32 if isa is Isa.AVX2 or (group - 1) % 64 < 32 else 64


def bf16_padding(isa: Isa) -> int:
    """K of a bf16 weight is padded to a multiple of this."""
    return 1 if isa is Isa.AVX2 else 32


def fp8_padded(k: int) -> int:
    """K of an FP8 weight with its padding."""
    return -(-k // 32) * 32


def write_fp32(weight: np.ndarray, out: np.ndarray) -> None:
    """weight: float32 [32 P, K]."""
    k = weight.shape[1]
    out.view(np.float32).reshape(-1, 2, k, HALF)[...] = weight.reshape(-1, 2, HALF, k).transpose(0, 1, 3, 2)


def round_to_bf16(values: np.ndarray) -> np.ndarray:
    """float32 to the bits of bfloat16 as uint16: nearest, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    nan = np.isnan(values)
    if nan.any():
        rounded[nan] = (bits[nan] >> 16).astype(np.uint16) | 0x40
    return rounded


def write_bf16(weight: np.ndarray, isa: Isa, out: np.ndarray) -> None:
    """weight: float32 [32 P, K]."""
    bits = round_to_bf16(weight)
    k = bits.shape[1]
    if isa is Isa.AVX2:
        out.view(np.uint16).reshape(-1, 2, k, 8, 2)[...] = bits.reshape(-1, 2, 2, 8, k).transpose(0, 1, 4, 3, 2)
        return
    padded = np.zeros((len(bits), -(-k // bf16_padding(isa)) * bf16_padding(isa)), np.uint16)
    padded[:, :k] = bits
    pairs = padded.view(np.uint32).reshape(-1, 2, HALF, padded.shape[1] // 2)
    out.view(np.uint32).reshape(-1, 2, padded.shape[1] // 2, HALF)[...] = pairs.transpose(0, 1, 3, 2)


def write_fp8(bits: np.ndarray, scale: np.ndarray, isa: Isa, out: np.ndarray) -> None:
    """bits: E4M3 as uint8 [32 P, K]; scale: float32 [32 P, groups], stored times 2^8 as kernels decode to 2^-8."""
    k = bits.shape[1]
    padded = np.zeros((len(bits), fp8_padded(k)), np.uint8)
    padded[:, :k] = bits
    body = fp8_padded(k) * PANEL
    if isa is Isa.AVX2:
        lines = padded.reshape(-1, 2, HALF, fp8_padded(k) // 4, 4).transpose(0, 3, 1, 4, 2)
    else:  # of an output: k / 4, k / 2 % 2, k % 2
        lines = padded.reshape(-1, 2, 4, 4, fp8_padded(k) // 4, 2, 2).transpose(0, 4, 1, 2, 5, 3, 6)
    out[:, :body] = lines.reshape(len(out), body)
    scales = (scale * np.float32(256)).reshape(len(out), PANEL, -1).transpose(0, 2, 1)
    out[:, body:] = np.ascontiguousarray(scales, np.float32).view(np.uint8).reshape(len(out), -1)


def pad_groups(q: np.ndarray, group: int, padded_group: int, padded_k: int) -> np.ndarray:
    """int8 [N, K] to int8 [N, padded_k]: every group of K begins at a multiple of `padded_group`."""
    n, k = q.shape
    if k == padded_k:
        return np.ascontiguousarray(q)
    padded = np.zeros((n, padded_k), np.int8)
    whole = k // group
    padded[:, : whole * padded_group].reshape(n, whole, padded_group)[:, :, :group] = q[:, : whole * group].reshape(
        n, whole, group
    )
    padded[:, whole * padded_group : whole * padded_group + k - whole * group] = q[:, whole * group :]
    return padded


def int4_chunks(q: np.ndarray, chunk: int) -> np.ndarray:
    """int8 [32 P, padded K] in [-8, 7] to uint32 [P, chunks, 2, chunk / 8, 16]: four low and four high nibbles each."""
    quads = q.view(np.uint32).reshape(-1, 2, HALF, q.shape[1] // chunk, 2, chunk // 8)
    packed = (quads[..., 1, :] & 0x0F0F0F0F) << 4
    packed |= quads[..., 0, :] & 0x0F0F0F0F
    packed ^= 0x88888888
    return packed.transpose(0, 3, 1, 4, 2)


def int8_chunks(q: np.ndarray, isa: Isa, chunk: int) -> np.ndarray:
    """int8 [32 P, padded K] to [P, chunks, 2, units, 16] of pairs (AVX2) or of quads, shifted by 128."""
    units = q.view(np.uint16) if isa is Isa.AVX2 else (q.view(np.uint8) ^ 0x80).view(np.uint32)
    of_chunk = chunk // (q.shape[1] // units.shape[1])
    return units.reshape(-1, 2, HALF, q.shape[1] // chunk, of_chunk).transpose(0, 3, 1, 4, 2)
