"""How a weight is cut into pieces to be quantized: runs of equal groups along K, blocks of rows that fit a cache."""

from collections.abc import Iterator
from dataclasses import dataclass

_BLOCK_ELEMENTS = 1 << 17  # a block and its temporaries stay in a core's cache


@dataclass(frozen=True)
class Part:
    """Columns that make whole groups of one size, and which groups these are."""

    columns: slice
    groups: slice
    size: int


def parts(k: int, group_size: int) -> list[Part]:
    """The groups along K: those of `group_size` (0: all of K), and the shorter last one, if there is one."""
    size = group_size or max(k, 1)
    count, rest = divmod(k, size)
    whole = Part(slice(0, k - rest), slice(0, count), size)
    last = Part(slice(k - rest, k), slice(count, count + 1), rest)
    return [part for part in (whole, last) if part.columns.start < part.columns.stop]


def row_blocks(n: int, k: int) -> Iterator[slice]:
    """Blocks of the rows of an [n, k] weight."""
    rows = max(1, _BLOCK_ELEMENTS // max(k, 1))
    for first in range(0, n, rows):
        yield slice(first, min(first + rows, n))
