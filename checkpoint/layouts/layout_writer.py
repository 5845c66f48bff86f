"""What a writer of a layout is: how quantized weights become the tensors and the config that loaders expect."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import BuildError
from ...quantization.quantized import QuantizedWeight
from ...quantization.scheme import LinearScheme

Packed = dict[str, np.ndarray]  # by suffix ("qweight")

_SMALLEST_GROUP = 8


class LayoutWriter(ABC):
    """Packs the weights of one checkpoint, all of one scheme.

    No loader but this project's takes a last group that is shorter than the others. So groups are stored smaller where
    they must: `group_size`, known once every layer was shown to `check`, is the largest that divides the scheme's
    and the inputs of all of them. The scales of a weight are repeated then, its values stay what they are.
    """

    format: str

    def __init__(self, scheme: LinearScheme) -> None:
        self.scheme = scheme
        self.group_size = scheme.weight.group_size  # 0: one for the whole of K

    def check(self, layer: str, n: int, k: int) -> None:
        """See that a layer's weight [n, k] can be packed. Every layer comes here before the first is packed.

        Raises BuildError naming the layer where it cannot.
        """
        asked = self.scheme.weight.group_size
        if asked > k:
            raise BuildError(
                f"{layer}: groups of {asked} weights are longer than its {k} inputs; ask for smaller groups, or -1 for "
                "one of all inputs, or leave the layer alone (--ignore)"
            )
        common = math.gcd(self.group_size, k) if asked else 0
        if asked and common < _SMALLEST_GROUP:
            raise BuildError(
                f"{layer}: its {k} inputs cannot be cut into equal groups that {asked} is a multiple of; ask for other "
                "groups, or -1 for one of all inputs, or leave the layer alone (--ignore)"
            )
        for what, size in (("outputs", n), ("inputs", k)):
            multiple = self._multiple(what)
            if size % multiple:
                raise BuildError(
                    f"{layer}: {self.format} packs {multiple} {what} to a word, and it has {size}; use --format "
                    "compressed-tensors, or leave the layer alone (--ignore)"
                )
        self.group_size = common

    def _multiple(self, what: str) -> int:
        """The number of "inputs" or "outputs" that only multiples of can be packed."""
        return 1

    @abstractmethod
    def pack(self, weight: QuantizedWeight, input_scale: float | None = None) -> Packed:
        """The tensors of one module, by suffix. `input_scale` is that of static activations: x = scale * q."""

    @abstractmethod
    def config(self, ignore: Sequence[str] = ()) -> dict[str, Any]:
        """The `quantization_config` of config.json. `ignore`: the names of all linear modules that stay as they are."""

    def _in_groups(self, of_groups: np.ndarray, k: int) -> np.ndarray:
        """Scales or zeros [N, G] of the scheme's groups as those of the groups that are stored."""
        if not self.group_size:
            return of_groups
        repeats = self.scheme.weight.group_size // self.group_size
        return np.repeat(of_groups, repeats, axis=1)[:, : k // self.group_size]


def in_fp16(scale: np.ndarray) -> np.ndarray:
    """Scales in fp16, or as they are, in float32, where that cannot hold them."""
    with np.errstate(over="ignore"):
        half = scale.astype(np.float16)
    return half if np.array_equal(half.astype(np.float32), scale) else scale.astype(np.float32)


def exactly_fp16(scale: np.ndarray) -> np.ndarray:
    """Scales in fp16. Raises ValueError where that cannot hold them: quantizers make storable ones for such formats."""
    half = in_fp16(scale)
    if half.dtype != np.float16:
        raise ValueError("scales must be exact in fp16 for this format")
    return half
