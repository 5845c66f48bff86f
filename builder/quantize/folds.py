"""Scales of a layer's input that the parameters which make the input can absorb.

Dividing what makes a value by s, and multiplying the columns of the layers that read it by s, leaves the network's
output as it was: the equivalence that SmoothQuant (Xiao et al., 2022) and AWQ (Lin et al., 2023) choose s within.
"""

from collections.abc import MutableMapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from .absorb import UNSCALED, Divisor, absorb_in_producer, channels_shape


@dataclass(frozen=True)
class Fold:
    """Divides an input of K channels by a scale, in the parameters that make it.

    `tied`: int [K]; channels with equal numbers must get equal scales, as the same elements of a parameter make them
    (the query heads that share a value head). None where every channel is free.
    """

    tied: np.ndarray | None
    divisors: tuple[Divisor, ...]

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters that change."""
        return tuple(divisor.parameter for divisor in self.divisors)

    def apply(self, parameters: MutableMapping[str, np.ndarray], scale: np.ndarray) -> None:
        """Replace float32 arrays of `parameters` (name -> array) so that they make the input divided by `scale`.

        `scale`: [K], positive. The columns of the layers that read the input are for the caller to multiply.
        """
        for divisor in self.divisors:
            parameters[divisor.parameter] = _divide(divisor, parameters[divisor.parameter], scale)


def find_fold(x: ir.Value, k: int) -> Fold | None:
    """The fold of a value [..., K]; None where no parameters can absorb its scale. Who reads `x` is not looked at."""
    shape = channels_shape(x)
    if shape is None or shape[-1] != k or int(np.prod(shape)) != k:
        return None
    absorbed = absorb_in_producer(x, np.arange(k).reshape(shape))
    return None if absorbed is None else Fold(_numbers(k, absorbed.ties), absorbed.divisors)


def _divide(divisor: Divisor, array: np.ndarray, scale: np.ndarray) -> np.ndarray:
    by = np.where(divisor.channels == UNSCALED, 1.0, scale[divisor.channels]).astype(np.float32)
    offset = np.float32(divisor.offset)
    return (array + offset) / by - offset


def _numbers(k: int, ties: tuple[np.ndarray, ...]) -> np.ndarray | None:
    """The smallest channel that each is tied to, through any number of pairs; None if no two are tied."""
    numbers = np.arange(k)
    pairs = np.concatenate([np.empty((0, 2), np.int64), *ties])
    while np.any(numbers[pairs[:, 0]] != numbers[pairs[:, 1]]):
        smaller = numbers[pairs].min(axis=1)
        np.minimum.at(numbers, pairs[:, 0], smaller)
        np.minimum.at(numbers, pairs[:, 1], smaller)
    return numbers if len(pairs) else None
