"""Whole words to the 4-bit and 8-bit numbers inside them."""

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
