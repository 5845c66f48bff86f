"""What a machine can do at best, as a target measures it: the scale that `bench` and `doctor` hold figures against."""

from collections.abc import Sequence
from typing import Protocol

from ..quantization.scheme import WeightType


class Ceilings(Protocol):
    """Measures on every call, which takes a tenth of a second to a second, and answers with the best reading so far.

    A ceiling is what the machine can do undisturbed: neighbours only ever lower a reading.
    """

    @property
    def instructions(self) -> Sequence[str]:
        """The kinds of multiply-add that the target's kernels use, each by the name that people are shown."""
        ...

    def instruction_of(self, weights: WeightType) -> str:
        """The one that linear layers of that type run on."""
        ...

    def read_bandwidth(self, num_bytes: int, threads: int) -> float:
        """Bytes per second read from a buffer of that size; 0 where memory is short."""
        ...

    def peak(self, instruction: str, threads: int) -> float:
        """Operations per second (a multiply-add is two); 0 where the machine lacks the instruction."""
        ...
