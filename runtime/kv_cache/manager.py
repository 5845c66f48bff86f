"""Which blocks of the paged KV cache each sequence holds, and which slot its states lie in.

Layers come in cache groups, each with a pool and a block table of its own. A full-attention group keeps every block; a
sliding-window group gives back the blocks that no later token can see, and its table holds -1 in their place.

A sequence that begins as another did takes over its full blocks: `find` them, `take` them, compute the rest, and
`publish` what was computed. Nobody writes to a block that is published.

States of recurrent layers stand at one token of their sequence, and are not kept of any other: such sequences share
nothing, cannot be cut back, and begin again at their first token when they lose their slot.
"""

from array import array
from collections.abc import Sequence

from ..manifest import KvCacheSpec, KvGroup, KvGroupKind
from .block_hash import BlockHasher
from .block_pool import BlockPool
from .eviction import Retention
from .sizing import blocks_for

FREED = -1
"""The entry of a block table whose block lies behind the window and was given back."""

NO_SLOT = -1
"""The slot of a sequence that has none, as long as it holds nothing."""


class SequenceBlocks:
    """One sequence's block tables, int32, in the order of the groups; `KvCacheManager.reserve` fills them."""

    __slots__ = ("first_kept", "hashes", "promised", "published", "retention", "salt", "slot", "tables")

    def __init__(self, groups: int, salt: str | None, retention: Retention | None) -> None:
        self.tables = tuple(array("i") for _ in range(groups))
        self.first_kept = [0] * groups
        """Index of the first table entry that was not freed, for each group."""
        self.promised: list[int] | None = None
        """Blocks set aside for the sequence's whole life, for each group."""
        self.salt = salt
        self.retention = retention
        self.hashes: list[bytes] = []
        """Of its first full blocks, as many as were asked for."""
        self.published = 0
        """How many of its first blocks are found by their hashes."""
        self.slot = NO_SLOT
        """Where its states lie."""


class KvCacheManager:
    """Hands out the blocks of all groups. `num_blocks[g]` is the size of group g's pool.

    Without a `hasher` no sequence takes over another's blocks. `num_slots`: of an engine with states, which takes no
    hasher.
    """

    def __init__(
        self,
        kv: KvCacheSpec,
        num_blocks: Sequence[int],
        max_num_tokens: int,
        hasher: BlockHasher | None = None,
        num_slots: int = 0,
    ) -> None:
        if hasher is not None and num_slots:
            raise ValueError("sequences with states cannot share blocks: they need the state at the end of a prefix")
        self.num_slots = num_slots
        self._free_slots = list(range(num_slots))[::-1]
        self._hasher = hasher
        self._block_size = kv.block_size
        self._groups = tuple(_Group(group, count) for group, count in zip(kv.groups, num_blocks, strict=True))
        self._max_num_tokens = max_num_tokens

    @property
    def pools(self) -> tuple[BlockPool, ...]:
        """The groups' pools, to look at."""
        return tuple(group.pool for group in self._groups)

    @property
    def shares_prefixes(self) -> bool:
        """Whether sequences that begin alike share blocks."""
        return self._hasher is not None

    @property
    def specs(self) -> tuple[KvGroup, ...]:
        """What the groups are."""
        return tuple(group.spec for group in self._groups)

    @property
    def has_states(self) -> bool:
        """Whether sequences have states, which can only be carried on from where they stand."""
        return self.num_slots > 0

    @property
    def usage(self) -> float:
        """The largest share of a pool that is in use, 0 to 1."""
        shares = [1 - pool.num_free / pool.num_blocks for pool in self.pools]
        return max([*shares, 1 - len(self._free_slots) / self.num_slots] if self.num_slots else shares)

    def new_sequence(self, salt: str | None = None, retention: Retention | None = None) -> SequenceBlocks:
        """Tables of a sequence that holds nothing yet. It shares blocks with those of the same salt only."""
        return SequenceBlocks(len(self._groups), salt, retention)

    def find(self, blocks: SequenceBlocks, token_ids: array, most: int) -> Sequence[Sequence[int]]:
        """The tables, one a group, of the longest cached prefix that a new sequence of these tokens can begin with.

        It consists of full blocks, of at most `most` tokens. Of a sliding-window group only those blocks need be
        there that the next token sees.
        """
        tables: list[list[int]] = [[] for _ in self._groups]
        if self._hasher is None:
            return tables
        found, runs = 0, [0] * len(tables)  # cached blocks in a row, up to the last one
        for count in range(1, most // self._block_size + 1):
            key = self._hasher.hash(count - 1, blocks.hashes, token_ids, blocks.salt)
            for index, group in enumerate(self._groups):
                block = group.pool.find(key)
                tables[index].append(FREED if block is None else block)
                runs[index] = 0 if block is None else runs[index] + 1
            if all(run >= count - self._first(g, count) for g, run in zip(self._groups, runs, strict=True)):
                found = count
            elif any(run < count and not g.window for g, run in zip(self._groups, runs, strict=True)):
                break
        firsts = [self._first(group, found) for group in self._groups]
        return [[FREED] * first + table[first:found] for first, table in zip(firsts, tables, strict=True)]

    def take(self, blocks: SequenceBlocks, prefix: Sequence[Sequence[int]]) -> int:
        """Let a new sequence begin with what `find` found just now; returns how many tokens that is."""
        for index, (group, table) in enumerate(zip(self._groups, prefix, strict=True)):
            blocks.first_kept[index] = table.count(FREED)
            blocks.tables[index].extend(table)
            for block in table[blocks.first_kept[index] :]:
                group.pool.share(block, blocks.retention)
        blocks.published = len(prefix[0]) if prefix else 0
        return blocks.published * self._block_size

    def publish(self, blocks: SequenceBlocks, token_ids: array, num_computed: int) -> None:
        """Let others find the blocks that are full, now that the first `num_computed` tokens are in the cache."""
        full = num_computed // self._block_size
        if self._hasher is None or full <= blocks.published:
            return
        for number in range(blocks.published, full):
            key = self._hasher.hash(number, blocks.hashes, token_ids, blocks.salt)
            for group, table in zip(self._groups, blocks.tables, strict=True):
                group.pool.publish(table[number], key, blocks.retention)
        blocks.published = full

    def reserve(self, blocks: SequenceBlocks, start: int, stop: int) -> bool:
        """Make room for tokens [start, stop), those before `start` being in the cache; False when there is no room.

        In any case gives back the blocks that no token from `start` on can see. A sequence gets its slot with its first
        blocks.
        """
        needs_slot = self.has_states and blocks.slot == NO_SLOT
        if needs_slot and not self._free_slots:
            return False
        for index, group in enumerate(self._groups):
            self._free_behind(blocks, index, group.first_visible(start))
        wanted = -(-stop // self._block_size)
        missing = [wanted - len(table) for table in blocks.tables]
        if any(count > group.pool.num_free for count, group in zip(missing, self._groups, strict=True)):
            return False
        for table, count, group in zip(blocks.tables, missing, self._groups, strict=True):
            for _ in range(count):
                table.append(group.pool.allocate())
        if needs_slot:
            blocks.slot = self._free_slots.pop()
        return True

    def can_reserve(self, num_tokens: int, prefix: Sequence[Sequence[int]], spare_blocks: int = 0) -> bool:
        """Whether a sequence of `num_tokens` that takes `prefix` could be held now, with `spare_blocks` left free."""
        return all(
            self._worst_case(group, num_tokens) - group.num_held(table) + spare_blocks <= group.pool.num_free
            for group, table in zip(self._groups, prefix, strict=True)
        )

    def promise(self, blocks: SequenceBlocks, num_tokens: int, prefix: Sequence[Sequence[int]]) -> bool:
        """Set aside what a new sequence that takes `prefix` may need until it has `num_tokens`; False if too much.

        When every sequence is promised its worst case, `reserve` never fails. A block that several hold counts once
        where they hold it to their end: behind a window one of them may give it up, and still need as many.
        """
        needs = [self._worst_case(group, num_tokens) for group in self._groups]
        for group, need, table in zip(self._groups, needs, prefix, strict=True):
            shared = 0 if group.window else group.pool.num_extra + group.num_held(table)
            if group.promised + need - shared > group.pool.num_blocks:
                return False
        for group, need in zip(self._groups, needs, strict=True):
            group.promised += need
        blocks.promised = needs
        return True

    def free(self, blocks: SequenceBlocks) -> None:
        """Give back all that a sequence holds and was promised; its tables are empty then."""
        for index, (group, table) in enumerate(zip(self._groups, blocks.tables, strict=True)):
            group.pool.release(reversed(table[blocks.first_kept[index] :]))  # a prefix is of use without what follows
            del table[:]
            blocks.first_kept[index] = 0
        for group, need in zip(self._groups, blocks.promised or (), strict=False):
            group.promised -= need
        blocks.promised = None
        blocks.hashes.clear()
        blocks.published = 0
        if blocks.slot != NO_SLOT:
            self._free_slots.append(blocks.slot)
            blocks.slot = NO_SLOT

    def truncate(self, blocks: SequenceBlocks, num_tokens: int) -> None:
        """Cut a sequence back to its first tokens; what it was promised it keeps.

        ValueError where it cannot be: into what is published, which others may hold, to where the next token sees
        blocks that were freed, or with states, which stand further on.
        """
        if self.has_states:
            raise ValueError("a sequence with states cannot be cut back: free it, and compute it again")
        if num_tokens < blocks.published * self._block_size:
            raise ValueError(f"{blocks.published} blocks are published: they cannot be cut to {num_tokens} tokens")
        for first, group in zip(blocks.first_kept, self._groups, strict=True):
            if group.first_visible(num_tokens) < first * self._block_size:
                raise ValueError(f"token {num_tokens} sees blocks that were freed: the sequence cannot be cut to it")
        kept = -(-num_tokens // self._block_size)
        for table, group in zip(blocks.tables, self._groups, strict=True):
            group.pool.release(reversed(table[kept:]))
            del table[kept:]

    def _free_behind(self, blocks: SequenceBlocks, index: int, first_visible: int) -> None:
        table, first = blocks.tables[index], blocks.first_kept[index]
        keep = min(first_visible // self._block_size, len(table))
        if keep <= first:
            return
        self._groups[index].pool.release(table[first:keep])
        for entry in range(first, keep):
            table[entry] = FREED
        blocks.first_kept[index] = keep

    def _first(self, group: "_Group", count: int) -> int:
        """Index of the first block that the token after `count` blocks sees."""
        return group.first_visible(count * self._block_size) // self._block_size

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

    def first_visible(self, position: int) -> int:
        """The first position that a token at `position` sees."""
        return max(0, position - self.window + 1) if self.window else 0

    def num_held(self, table: Sequence[int]) -> int:
        """How many of a prefix's blocks somebody holds."""
        return sum(block != FREED and self.pool.references(block) > 0 for block in table)
