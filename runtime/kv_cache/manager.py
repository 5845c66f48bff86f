"""Which blocks of the paged KV cache each sequence holds.

Layers come in cache groups, each with a pool and a block table of its own. A full-attention group keeps every block; a
sliding-window group gives back the blocks that no later token can see, and its table holds -1 in their place.
"""

from array import array
from collections.abc import Sequence

from ..manifest import KvCacheSpec, KvGroup, KvGroupKind
from .block_pool import BlockPool
from .sizing import blocks_for

FREED = -1
"""The entry of a block table whose block lies behind the window and was given back."""


class SequenceBlocks:
    """One sequence's block tables, int32, in the order of the groups; `KvCacheManager.reserve` fills them."""

    __slots__ = ("first_kept", "promised", "tables")

    def __init__(self, groups: int) -> None:
        self.tables = tuple(array("i") for _ in range(groups))
        self.first_kept = [0] * groups
        """Index of the first table entry that was not freed, for each group."""
        self.promised: list[int] | None = None
        """Blocks set aside for the sequence's whole life, for each group."""


class KvCacheManager:
    """Hands out the blocks of all groups. `num_blocks[g]` is the size of group g's pool."""

    def __init__(self, kv: KvCacheSpec, num_blocks: Sequence[int], max_num_tokens: int) -> None:
        self._block_size = kv.block_size
        self._groups = tuple(_Group(group, count) for group, count in zip(kv.groups, num_blocks, strict=True))
        self._max_num_tokens = max_num_tokens

    @property
    def pools(self) -> tuple[BlockPool, ...]:
        """The groups' pools, to look at."""
        return tuple(group.pool for group in self._groups)

    @property
    def usage(self) -> float:
        """The largest share of a pool that is in use, 0 to 1."""
        return max(1 - pool.num_free / pool.num_blocks for pool in self.pools)

    def new_sequence(self) -> SequenceBlocks:
        """Tables of a sequence that holds nothing yet."""
        return SequenceBlocks(len(self._groups))

    def reserve(self, blocks: SequenceBlocks, start: int, stop: int) -> bool:
        """Make room for tokens [start, stop), those before `start` being in the cache; False when there is no room.

        In any case gives back the blocks that no token from `start` on can see.
        """
        for index, group in enumerate(self._groups):
            if group.window:
                self._free_behind(blocks, index, start - group.window + 1)
        wanted = -(-stop // self._block_size)
        missing = [wanted - len(table) for table in blocks.tables]
        if any(count > group.pool.num_free for count, group in zip(missing, self._groups, strict=True)):
            return False
        for table, count, group in zip(blocks.tables, missing, self._groups, strict=True):
            for _ in range(count):
                table.append(group.pool.allocate())
        return True

    def can_reserve(self, num_tokens: int, spare_blocks: int = 0) -> bool:
        """Whether a new sequence of `num_tokens` could be held now, leaving `spare_blocks` free in each group."""
        return all(self._worst_case(group, num_tokens) + spare_blocks <= group.pool.num_free for group in self._groups)

    def promise(self, blocks: SequenceBlocks, num_tokens: int) -> bool:
        """Set aside what a new sequence may need until it has `num_tokens`; False when that is too much.

        When every sequence is promised its worst case, `reserve` never fails.
        """
        needs = [self._worst_case(group, num_tokens) for group in self._groups]
        if any(group.promised + need > group.pool.num_blocks for group, need in zip(self._groups, needs, strict=True)):
            return False
        for group, need in zip(self._groups, needs, strict=True):
            group.promised += need
        blocks.promised = needs
        return True

    def free(self, blocks: SequenceBlocks) -> None:
        """Give back all that a sequence holds and was promised; its tables are empty then."""
        for index, (group, table) in enumerate(zip(self._groups, blocks.tables, strict=True)):
            group.pool.release(table[blocks.first_kept[index] :])
            del table[:]
            blocks.first_kept[index] = 0
        for group, need in zip(self._groups, blocks.promised or (), strict=False):
            group.promised -= need
        blocks.promised = None

    def reset(self) -> None:
        """Make every block free and break every promise: the sequences that there were must not be used again."""
        for group in self._groups:
            group.pool.reset()
            group.promised = 0

    def _free_behind(self, blocks: SequenceBlocks, index: int, first_visible: int) -> None:
        table, first = blocks.tables[index], blocks.first_kept[index]
        keep = min(first_visible // self._block_size, len(table))
        if keep <= first:
            return
        self._groups[index].pool.release(table[first:keep])
        for entry in range(first, keep):
            table[entry] = FREED
        blocks.first_kept[index] = keep

    def _worst_case(self, group: "_Group", num_tokens: int) -> int:
        return blocks_for(group.spec, self._block_size, num_tokens, self._max_num_tokens)


class _Group:
    """One cache group: its pool, and how many of the pool's blocks are promised to sequences."""

    __slots__ = ("pool", "promised", "spec", "window")

    def __init__(self, spec: KvGroup, num_blocks: int) -> None:
        self.spec = spec
        self.window = spec.window if spec.kind is KvGroupKind.SLIDING_WINDOW else 0
        self.pool = BlockPool(num_blocks)
        self.promised = 0
