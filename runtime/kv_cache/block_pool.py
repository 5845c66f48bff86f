"""A pool of equal blocks, each held by zero or more owners; a free one may be kept for what it holds."""

from array import array
from collections.abc import Iterable

from .eviction import EvictionQueue, Retention


class BlockPool:
    """Block ids 0 .. num_blocks-1 with reference counts. A block is free exactly when its count is zero.

    What a block holds may be published under a key. By it the block is found, and shared even when free, until it is
    handed out for something else. Free blocks without a key are handed out first, the last freed of them before the
    others, while its memory is still warm; then those with one, in the order of `EvictionQueue`.
    """

    def __init__(self, num_blocks: int) -> None:
        self._references = array("i", bytes(4 * num_blocks))
        self._blank = list(range(num_blocks - 1, -1, -1))
        self._cached = EvictionQueue()
        self._keys: dict[int, bytes] = {}
        self._blocks: dict[bytes, int] = {}
        self._retention: dict[int, Retention] = {}  # of blocks that were given one
        self.num_extra = 0
        """Holders beyond the first, of all blocks together."""

    @property
    def num_blocks(self) -> int:
        """Blocks in all."""
        return len(self._references)

    @property
    def num_free(self) -> int:
        """Blocks nobody holds."""
        return len(self._blank) + len(self._cached)

    @property
    def num_cached(self) -> int:
        """How many of them can be found by what they hold."""
        return len(self._cached)

    def cached_blocks(self) -> list[int]:
        """Those, in ascending order."""
        return self._cached.blocks()

    def references(self, block: int) -> int:
        """How many hold the block."""
        return self._references[block]

    def find(self, key: bytes) -> int | None:
        """The block published under the key, if it is still there."""
        return self._blocks.get(key)

    def allocate(self) -> int:
        """A free block, now held once. The caller makes sure that there is one: IndexError otherwise."""
        block = self._blank.pop() if self._blank else self._evict()
        self._references[block] = 1
        return block

    def publish(self, block: int, key: bytes, retention: Retention | None = None) -> None:
        """Let a held block be found by what it holds, unless another block is."""
        if self._blocks.setdefault(key, block) == block:
            self._keys[block] = key
            self._retain(block, retention)

    def share(self, block: int, retention: Retention | None = None) -> None:
        """One more holder for a block that is held or published; ValueError for another. None: retained as before."""
        if self._references[block]:
            self.num_extra += 1
        elif block in self._keys:
            self._cached.remove(block)
        else:
            raise ValueError(f"block {block} is free: it cannot be shared")
        self._references[block] += 1
        self._retain(block, retention)

    def release(self, blocks: Iterable[int]) -> None:
        """One holder less for each block; those left without become free. ValueError for a free block."""
        for block in blocks:
            count = self._references[block] - 1
            if count < 0:
                raise ValueError(f"block {block} is free: it cannot be released")
            self._references[block] = count
            if count:
                self.num_extra -= 1
            elif block in self._keys:
                self._cached.push(block, self._retention.get(block, Retention()))
            else:
                self._blank.append(block)

    def _retain(self, block: int, retention: Retention | None) -> None:
        if retention is not None:
            self._retention[block] = retention

    def _evict(self) -> int:
        block = self._cached.pop()
        del self._blocks[self._keys.pop(block)]
        self._retention.pop(block, None)
        return block
