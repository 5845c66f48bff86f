"""What must be true of the KV cache's books at any time."""

from collections import Counter
from collections.abc import Iterable

from enginesmith.runtime.kv_cache.block_pool import BlockPool
from enginesmith.runtime.kv_cache.manager import FREED, KvCacheManager, SequenceBlocks


def check_blocks(kv: KvCacheManager, sequences: Iterable[SequenceBlocks]) -> None:
    """No block is lost, or both free and used; each is counted as often as `sequences`, which are all, hold it."""
    tables = [sequence.tables for sequence in sequences]
    for index, pool in enumerate(kv.pools):
        check_pool(pool, Counter(block for table in tables for block in table[index] if block != FREED))


def check_pool(pool: BlockPool, held: Counter[int]) -> None:
    """The pool's books, given how often each block is held."""
    assert [pool.references(block) for block in range(pool.num_blocks)] == [held[b] for b in range(pool.num_blocks)]
    blank, cached = set(pool._blank), set(pool._cached._entries)
    assert len(blank) == len(pool._blank)
    assert not blank & cached
    assert blank | cached == set(range(pool.num_blocks)) - set(held)
    assert pool.num_free == len(blank) + len(cached)
    assert pool.num_extra == sum(count - 1 for count in held.values())
    assert {key: block for block, key in pool._keys.items()} == pool._blocks
    assert len(pool._keys) == len(pool._blocks)
    assert cached <= set(pool._keys)
    assert not blank & set(pool._keys)
    assert set(pool._retention) <= set(pool._keys)
    assert {b: p for p, queue in pool._cached._queues.items() for b in queue} == {
        block: priority for block, (priority, _) in pool._cached._entries.items()
    }
    assert all(pool._cached._queues.values())
