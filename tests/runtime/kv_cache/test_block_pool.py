"""The block pool against a plain model of it."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from enginesmith.runtime.kv_cache.block_pool import BlockPool

SIZE = 7


class PoolMachine(RuleBasedStateMachine):
    """Holders come and go; the pool must count them as a list of held blocks does."""

    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(SIZE)
        self.holders: list[int] = []

    @precondition(lambda self: self.pool.num_free)
    @rule(target=held)
    def allocate(self) -> int:
        block = self.pool.allocate()
        assert block not in self.holders
        self.holders.append(block)
        return block

    @rule(target=held, block=held)
    def share(self, block: int) -> int:
        self.pool.share(block)
        self.holders.append(block)
        return block

    @rule(block=consumes(held))
    def release(self, block: int) -> None:
        self.pool.release([block])
        self.holders.remove(block)

    @rule(block=st.integers(0, SIZE - 1))
    def free_blocks_cannot_be_shared_or_released(self, block: int) -> None:
        if block in self.holders:
            return
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
        assert [self.pool.references(block) for block in range(SIZE)] == [self.holders.count(b) for b in range(SIZE)]
        assert self.pool.num_free == SIZE - len(set(self.holders))


PoolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestPool = PoolMachine.TestCase
