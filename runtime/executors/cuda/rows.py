"""Rows of logits on their way to the host, where tokens are drawn that the device has not found."""

from collections.abc import Iterable, Iterator
from typing import Any

from ..executor import Draw
from .driver import call
from .resources import Resources


def is_greedy(draw: Draw) -> bool:
    """Whether the likeliest token by the raw logits is all that is wanted."""
    sampling = draw.sampling
    is_plain = not sampling.looks_back and not sampling.mask and sampling.bias_tokens is None
    return is_plain and sampling.params.temperature == 0 and draw.num_logprobs < 0 and draw.token < 0


class HostRows:
    """A pinned copy, float32 [max_rows, vocab_size], of the rows of logits that are asked for."""

    def __init__(self, max_rows: int, vocab_size: int, resources: Resources) -> None:
        self._row_bytes = 4 * vocab_size
        self.address = resources.pinned(max_rows * self._row_bytes)

    def copy(self, rows: Iterable[int], logits: int, stream: Any) -> None:
        """Copy rows of the logits at a device's address to their places; returns when they are there."""
        for first, end in _runs(sorted(set(rows))):
            at, nbytes = first * self._row_bytes, (end - first) * self._row_bytes
            call("cuMemcpyDtoHAsync", self.address + at, logits + at, nbytes, stream)
        call("cuStreamSynchronize", stream)


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """(first, end) of the runs of adjacent numbers in an ascending list."""
    first = 0
    for index in range(1, len(numbers) + 1):
        if index == len(numbers) or numbers[index] != numbers[index - 1] + 1:
            yield numbers[first], numbers[index - 1] + 1
            first = index
