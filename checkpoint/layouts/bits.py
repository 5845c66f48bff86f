"""Whole words, and the 4-bit and 8-bit numbers inside them."""

import numpy as np


def unpack(words: np.ndarray, bits: int) -> np.ndarray:
    """int32 [..., W] to uint8 [..., W * 32 / bits]: the numbers of each word, from its lowest bits up."""
    octets = np.ascontiguousarray(words, "<i4").view(np.uint8)
    if bits == 8:
        return octets
    numbers = np.empty((*octets.shape, 2), np.uint8)
    np.bitwise_and(octets, 15, out=numbers[..., 0])
    np.right_shift(octets, 4, out=numbers[..., 1])
    return numbers.reshape(*octets.shape[:-1], -1)


def centred(numbers: np.ndarray, bits: int) -> np.ndarray:
    """uint8 numbers that count from 0 as int8 that count from -2^(bits - 1)."""
    return (numbers - np.uint8(1 << (bits - 1))).view(np.int8)


def pack(numbers: np.ndarray, bits: int) -> np.ndarray:
    """uint8 numbers [..., C], each below 2^bits, to int32 [..., C bits / 32], the last word filled up with zeros.

    `unpack` gives them back.
    """
    each = 32 // bits
    padded = np.zeros((*numbers.shape[:-1], -(-numbers.shape[-1] // each) * each), np.uint8)
    padded[..., : numbers.shape[-1]] = numbers
    octets = padded if bits == 8 else padded[..., ::2] | (padded[..., 1::2] << np.uint8(4))
    return np.ascontiguousarray(octets).view("<i4")


def counted(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Whole numbers that count from -2^(bits - 1) as uint8 that count from 0: the inverse of `centred`."""
    return (numbers.astype(np.int16) + (1 << (bits - 1))).astype(np.uint8)
