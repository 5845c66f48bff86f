"""What quantized tensors stand for, written from the formats' specifications alone, for the check of a build.

Nothing here is shared with the readers beside it, which engines are built with: what a reader gets wrong shows as a
distance between the engine and Transformers on these weights. All give a float32 weight [N, K], slower than readers do
and with several times the memory. Group size 0 is the whole of K.
"""

import numpy as np

from .tensors import Tensors

_AWQ_PLACES = (0, 2, 4, 6, 1, 3, 5, 7)  # the output, of eight, in bits 0 to 3, 4 to 7, ... of a word


def gptq(
    tensors: Tensors, shape: tuple[int, int], bits: int, group_size: int, *, symmetric: bool | None, version: str
) -> np.ndarray:
    """GPTQ: (q - zero) * scale; a symmetric zero is half the range, another is stored less 1 in the version "gptq".

    Where it is not told whether weights are `symmetric`, they are if all zeros are that by either version.
    """
    n, k = shape
    q = _numbers(tensors["qweight"].T, bits)[:, :k]
    zero = _numbers(tensors["qzeros"], bits)[:, :n].T + {"gptq": 1, "gptq_v2": 0}[version]
    half, by_other = 1 << (bits - 1), {"gptq": 1, "gptq_v2": -1}[version]
    if symmetric or (symmetric is None and ((zero == half).all() or (zero == half + by_other).all())):
        zero = np.full_like(zero, half)
    group = np.asarray(tensors["g_idx"]) if "g_idx" in tensors else np.arange(k) // (group_size or k)
    return _scaled(q - zero[:, group], np.asarray(tensors["scales"], np.float32).T[:, group])


def awq(tensors: Tensors, shape: tuple[int, int], group_size: int) -> np.ndarray:
    """AutoAWQ's GEMM: outputs are interleaved in words."""
    n, k = shape
    group = np.arange(k) // (group_size or k)
    outputs = [8 * word + place for word in range(tensors["qweight"].shape[1]) for place in _AWQ_PLACES]
    q, zero = (_numbers(tensors[name], 4)[:, np.argsort(outputs)[:n]].T for name in ("qweight", "qzeros"))
    return _scaled(q - zero[:, group], np.asarray(tensors["scales"], np.float32).T[:, group])


def awq_gemv(tensors: Tensors, shape: tuple[int, int], group_size: int) -> np.ndarray:
    """AutoAWQ's GEMV: inputs in a row."""
    k = shape[1]
    group = np.arange(k) // (group_size or k)
    q, zero = (_numbers(tensors[name], 4) for name in ("qweight", "qzeros"))
    return _scaled(q[:, :k] - zero[:, group], np.asarray(tensors["scales"], np.float32)[:, group])


def packed(tensors: Tensors, shape: tuple[int, int], bits: int, group_size: int, *, symmetric: bool) -> np.ndarray:
    """compressed-tensors: integers about 0, in words or (8 bits) plain; zero points likewise."""
    n, k = shape
    half = 1 << (bits - 1)
    q = _numbers(tensors["weight_packed"], bits)[:, :k] - half if "weight_packed" in tensors else tensors["weight"]
    scale = np.asarray(tensors["weight_scale"], np.float32)
    scale = np.broadcast_to(scale if scale.ndim == 2 else scale.reshape(-1, 1), (n, scale.size // n or 1))
    group = np.asarray(tensors["weight_g_idx"]) if "weight_g_idx" in tensors else np.arange(k) // (group_size or k)
    if not symmetric:
        zero = tensors["weight_zero_point"]
        zero = zero.astype(np.int32) if zero.dtype == np.int8 else _numbers(zero.T, bits)[:, :n].T - half
        zero = np.broadcast_to(zero if zero.ndim == 2 else zero.reshape(-1, 1), scale.shape)
        return _scaled(q - zero[:, group], scale[:, group])
    return _scaled(q.astype(np.int32), scale[:, group])


def fp8(weight: np.ndarray, scale: np.ndarray, block: tuple[int, int] | None) -> np.ndarray:
    """E4M3 (1 sign, 4 exponent bits with a bias of 7, 3 mantissa bits; no infinities) times the scale of each block,
    each output, or all."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    magnitude = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    magnitude[(exponent == 15) & (mantissa == 7)] = np.nan
    values = np.where(code < 128, magnitude, -magnitude).astype(np.float32)[weight.view(np.uint8)]
    scale = np.asarray(scale, np.float32)
    if block is None:
        return values * scale.reshape(-1, 1)
    spread = np.repeat(np.repeat(scale, block[0], axis=0), block[1], axis=1)
    return values * spread[: weight.shape[0], : weight.shape[1]]


def _numbers(words: np.ndarray, bits: int) -> np.ndarray:
    """int32 [..., W] to int32 [..., W * 32 / bits], from the lowest bits of each word up."""
    shifts = np.arange(0, 32, bits)
    numbers = np.asarray(words).astype(np.int64)[..., None] >> shifts & ((1 << bits) - 1)
    return numbers.reshape(*words.shape[:-1], -1).astype(np.int32)


def _scaled(steps: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return steps.astype(np.float32) * scale
