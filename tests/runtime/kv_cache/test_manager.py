"""The KV cache manager under random sequences: no block lost, held twice, or missing where a token can see it."""

from array import array

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kv_groups import BLOCK, full, sliding, spec

from enginesmith.errors import EngineError
from enginesmith.runtime.kv_cache.block_hash import BlockHasher
from enginesmith.runtime.kv_cache.manager import FREED, NO_SLOT, KvCacheManager, SequenceBlocks
from enginesmith.runtime.kv_cache.sizing import blocks_for, num_blocks, num_slots
from enginesmith.runtime.manifest import KvGroup, Limits, StateSpec

STEP, LONGEST = 6, 50


class Sequence:
    def __init__(self, blocks: SequenceBlocks, promised: int | None) -> None:
        self.blocks = blocks
        self.promised = promised
        self.start = self.stop = 0
        """The last step's tokens."""


class ManagerMachine(RuleBasedStateMachine):
    """Sequences grow step by step, with and without a promise, and end at any time."""

    @initialize(windows=st.lists(st.integers(1, 13), max_size=2), sequences=st.integers(1, 3), data=st.data())
    def open(self, windows: list[int], sequences: int, data: st.DataObject) -> None:
        self.groups = (full(), *(sliding(window) for window in windows))
        self.with_promises = data.draw(st.booleans())
        sizes = [blocks_for(group, BLOCK, LONGEST, STEP) * sequences for group in self.groups]
        self.kv = KvCacheManager(spec(*self.groups), sizes, STEP)
        self.sequences: list[Sequence] = []

    @rule(tokens=st.integers(1, LONGEST))
    def begin(self, tokens: int) -> None:
        sequence = Sequence(self.kv.new_sequence(), tokens if self.with_promises else None)
        if self.with_promises and not self.kv.promise(
            sequence.blocks, tokens, self.kv.find(sequence.blocks, array("i"), 0)
        ):
            assert self.sequences, "one sequence always fits"
            return
        self.sequences.append(sequence)

    @precondition(lambda self: self.sequences)
    @rule(data=st.data(), count=st.integers(1, STEP))
    def step(self, data: st.DataObject, count: int) -> None:
        sequence = data.draw(st.sampled_from(self.sequences))
        count = min(count, (sequence.promised or LONGEST) - sequence.stop)
        if count < 1:
            return
        before = [len(table) for table in sequence.blocks.tables]
        if self.kv.reserve(sequence.blocks, sequence.stop, sequence.stop + count):
            sequence.start, sequence.stop = sequence.stop, sequence.stop + count
        else:
            assert not self.with_promises, "a promise was broken"
            assert len(self.sequences) > 1, "one sequence always fits"
            assert [len(table) for table in sequence.blocks.tables] == before
            sequence.start = sequence.stop  # what only tokens before it saw may be given back all the same

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(self.sequences))
        self.sequences.remove(sequence)
        self.kv.free(sequence.blocks)
        self.kv.free(sequence.blocks)
        assert all(len(table) == 0 for table in sequence.blocks.tables)

    @precondition(lambda self: self.sequences)
    @rule()
    def end_all(self) -> None:
        for sequence in self.sequences:
            self.kv.free(sequence.blocks)
        self.sequences.clear()
        assert self.kv.usage == 0

    @invariant()
    def blocks_are_held_once_and_none_is_lost(self) -> None:
        for index, pool in enumerate(self.kv.pools):
            held = [b for s in self.sequences for b in s.blocks.tables[index] if b != FREED]
            assert len(held) == len(set(held))
            assert len(held) + pool.num_free == pool.num_blocks
            assert all(pool.references(block) == 1 for block in held)

    @invariant()
    def what_the_last_step_saw_is_there_and_no_more_than_the_worst_case(self) -> None:
        for sequence in self.sequences:
            for group, table in zip(self.groups, sequence.blocks.tables, strict=True):
                assert len(table) == -(-sequence.stop // BLOCK)
                oldest = max(0, sequence.start - group.window + 1) if group.window else 0
                for position in range(oldest, sequence.stop):
                    assert table[position // BLOCK] != FREED
                live = sum(block != FREED for block in table)
                assert live <= blocks_for(group, BLOCK, LONGEST, STEP)


ManagerMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40)
TestManager = ManagerMachine.TestCase


def test_blocks_behind_the_window_are_given_back():
    kv = KvCacheManager(spec(full(), sliding(5)), [10, 10], max_num_tokens=1)
    blocks = kv.new_sequence()
    for position in range(17):
        assert kv.reserve(blocks, position, position + 1)
    whole, windowed = blocks.tables
    assert FREED not in whole
    assert windowed[:3].tolist() == [FREED] * 3  # token 16 sees 12..16
    assert FREED not in windowed[3:]
    assert kv.pools[1].num_free == 8


def test_sizes_follow_the_budget():
    limits = Limits(max_batch_size=4, max_num_tokens=8, max_seq_len=64)
    kv = spec(full(100), sliding(8, 10))
    # one sequence: 16 blocks in the full group; window 8 and a step of 8 tokens touch at most 5 blocks
    assert num_blocks(kv, limits, 10**9, "kv_cache_memory") == [64, 20]
    assert num_blocks(kv, limits, 1650, "kv_cache_memory") == [16, 5]
    assert num_blocks(kv, limits, 3000, "kv_cache_memory") == [29, 9]
    with pytest.raises(EngineError, match="max_seq_len 64 needs 1650 bytes of KV cache, but kv_cache_memory is 1649"):
        num_blocks(kv, limits, 1649, "kv_cache_memory")
    with pytest.raises(EngineError, match=r"needs 1\.6 kB of KV cache, but kv_cache_memory is 900 B: allow more"):
        num_blocks(kv, limits, 900, "kv_cache_memory")


@pytest.mark.parametrize("groups", [(), (full(),)], ids=["states alone", "with a KV cache"])
def test_a_sequence_has_a_slot_for_as_long_as_it_holds_anything(groups: tuple[KvGroup, ...]):
    kv = KvCacheManager(spec(*groups), [10] * len(groups), max_num_tokens=1, num_slots=2)
    first, second, third = (kv.new_sequence() for _ in range(3))
    assert kv.reserve(first, 0, 3)
    assert kv.reserve(second, 0, 1)
    assert not kv.reserve(third, 0, 1)
    assert third.slot == NO_SLOT
    assert {first.slot, second.slot} == {0, 1}
    assert kv.usage == 1
    held = first.slot
    assert kv.reserve(first, 3, 9)
    assert first.slot == held
    with pytest.raises(ValueError, match="cannot be cut back"):
        kv.truncate(first, 2)
    kv.free(first)
    assert first.slot == NO_SLOT
    assert kv.reserve(third, 0, 1)
    assert third.slot == held


def test_sequences_with_states_share_nothing():
    with pytest.raises(ValueError, match="cannot share blocks"):
        KvCacheManager(spec(full()), [10], 1, BlockHasher(b"model", BLOCK), num_slots=2)
    kv = KvCacheManager(spec(), [], 1, num_slots=2)
    blocks, tokens = kv.new_sequence(), array("i", range(40))
    assert kv.take(blocks, kv.find(blocks, tokens, 39)) == 0
    assert kv.promise(blocks, 40, kv.find(blocks, tokens, 39))


def test_slots_leave_room_for_a_long_sequence():
    limits = Limits(max_batch_size=4, max_num_tokens=8, max_seq_len=64)  # a sequence of 64 tokens takes 160 bytes
    state = StateSpec(slot_bytes=100)
    assert num_slots(StateSpec(), spec(full()), limits, 10, "x") == 0
    assert num_slots(state, spec(), limits, 250, "x") == 2
    assert num_slots(state, spec(), limits, 10**6, "x") == 4
    assert num_slots(state, spec(full()), limits, 700, "x") == 3
    assert num_slots(state, spec(full()), limits, 260, "x") == 1
    assert num_slots(state, spec(full()), limits, 100, "x") == 1  # num_blocks then says what is missing
    assert num_blocks(spec(), limits, 0, "x") == []
    with pytest.raises(EngineError, match="the states of one sequence take 100 B, but kv_cache_memory is 99 B"):
        num_slots(state, spec(), limits, 99, "kv_cache_memory")
