"""The block pool against a plain model of it."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule
from kv_invariants import check_pool

from enginesmith.runtime.kv_cache.block_pool import BlockPool
from enginesmith.runtime.kv_cache.eviction import Retention

SIZE = 7


class PoolMachine(RuleBasedStateMachine):
    """Holders come and go; the pool must count them as a list of held blocks does, and find what was published."""

    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(SIZE)
        self.holders: list[int] = []
        self.published: dict[bytes, int] = {}

    @precondition(lambda self: self.pool.num_free)
    @rule(target=held)
    def allocate(self) -> int:
        blank = set(range(SIZE)) - {*self.holders, *self.published.values()}
        block = self.pool.allocate()
        assert block not in self.holders
        assert block in blank or not blank, "what is cached goes last"
        self.published = {key: other for key, other in self.published.items() if other != block}
        self.holders.append(block)
        return block

    @rule(target=held, block=held)
    def share(self, block: int) -> int:
        self.pool.share(block)
        self.holders.append(block)
        return block

    @rule(block=held, key=st.binary(min_size=1, max_size=1), priority=st.sampled_from([None, 0, 90]))
    def publish(self, block: int, key: bytes, priority: int | None) -> None:
        if block not in self.published.values():  # once: then it is full
            self.pool.publish(block, key, None if priority is None else Retention(priority))
            self.published.setdefault(key, block)

    @precondition(lambda self: self.published)
    @rule(target=held, data=st.data())
    def share_what_is_found(self, data: st.DataObject) -> int:
        block = self.pool.find(data.draw(st.sampled_from(sorted(self.published))))
        assert block is not None
        self.pool.share(block)
        self.holders.append(block)
        return block

    @rule(block=consumes(held))
    def release(self, block: int) -> None:
        self.pool.release([block])
        self.holders.remove(block)

    @rule(block=st.integers(0, SIZE - 1))
    def free_blocks_cannot_be_released_nor_blank_ones_shared(self, block: int) -> None:
        if block in self.holders:
            return
        if block not in self.published.values():
            with pytest.raises(ValueError, match=f"block {block} is free"):
                self.pool.share(block)
        with pytest.raises(ValueError, match=f"block {block} is free"):
            self.pool.release([block])

    @precondition(lambda self: not self.pool.num_free)
    @rule()
    def an_empty_pool_gives_nothing(self) -> None:
        with pytest.raises(IndexError):
            self.pool.allocate()

    @invariant()
    def counts_agree(self) -> None:
        check_pool(self.pool, Counter(self.holders))

    @invariant()
    def what_is_published_is_found(self) -> None:
        assert self.pool._blocks == self.published


PoolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestPool = PoolMachine.TestCase


def cached(pool: BlockPool, *retentions: Retention | None) -> list[int]:
    """Free blocks that were published with those retentions and released in this order."""
    blocks = [pool.allocate() for _ in retentions]
    for block, retention in zip(blocks, retentions, strict=True):
        pool.publish(block, bytes([block]), retention)
    pool.release(blocks)
    return blocks


def test_the_least_recently_used_goes_first_but_for_priority():
    pool = BlockPool(5)
    dear, old, cheap, middle, new = cached(pool, Retention(90), None, Retention(0), None, None)
    pool.share(middle)
    pool.release([middle])
    assert [pool.allocate() for _ in range(5)] == [cheap, old, new, middle, dear]


def test_whoever_shares_a_block_may_say_how_dear_it_is():
    pool = BlockPool(3)
    first, second, third = cached(pool, Retention(90), Retention(90), Retention(90))
    for block, retention in ((first, None), (second, Retention(10))):
        pool.share(block, retention)
        pool.release([block])
    assert [pool.allocate() for _ in range(3)] == [second, third, first]
