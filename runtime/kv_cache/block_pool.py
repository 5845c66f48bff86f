"""A pool of equal blocks, each held by zero or more owners."""

from array import array
from collections.abc import Iterable


class BlockPool:
    """Block ids 0 .. num_blocks-1 with reference counts. A block is free exactly when its count is zero.

    Freed blocks are handed out again first, while their memory is still warm.
    """

    def __init__(self, num_blocks: int) -> None:
        self._references = array("i", bytes(4 * num_blocks))
        self.reset()

    def reset(self) -> None:
        """Make every block free, whoever held it."""
        self._references = array("i", bytes(4 * len(self._references)))
        self._free = list(range(len(self._references) - 1, -1, -1))

    @property
    def num_blocks(self) -> int:
        """Blocks in all."""
        return len(self._references)

    @property
    def num_free(self) -> int:
        """Blocks nobody holds."""
        return len(self._free)

    def references(self, block: int) -> int:
        """How many hold the block."""
        return self._references[block]

    def allocate(self) -> int:
        """A free block, now held once. The caller makes sure that there is one: IndexError otherwise."""
        block = self._free.pop()
        self._references[block] = 1
        return block

    def share(self, block: int) -> None:
        """One more holder for a block that is held already; ValueError for a free one."""
        if self._references[block] < 1:
            raise ValueError(f"block {block} is free: it cannot be shared")
        self._references[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """One holder less for each block; those left without become free. ValueError for a free block."""
        for block in blocks:
            count = self._references[block] - 1
            if count < 0:
                raise ValueError(f"block {block} is free: it cannot be released")
            self._references[block] = count
            if count == 0:
                self._free.append(block)
