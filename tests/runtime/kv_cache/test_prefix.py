"""Sequences that begin alike, in a model of the cache's memory: what one takes over is what it would have computed."""

from array import array
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kv_groups import BLOCK, full, sliding, spec
from kv_invariants import check_blocks

from enginesmith.runtime.kv_cache.block_hash import BlockHasher
from enginesmith.runtime.kv_cache.eviction import Retention
from enginesmith.runtime.kv_cache.manager import FREED, KvCacheManager, SequenceBlocks
from enginesmith.runtime.kv_cache.sizing import blocks_for

STEP, LONGEST = 6, 40
STREAMS = [array("i", [seed] * 9 + [(seed + 1) * i % 5 for i in range(LONGEST - 9)]) for seed in (1, 1, 2)]
STREAMS[1][30] = 4


def find(kv: KvCacheManager, blocks: SequenceBlocks, tokens: array) -> Any:
    """What leaves a token to compute."""
    return kv.find(blocks, tokens, len(tokens) - 1)


class Sequence:
    def __init__(self, blocks: SequenceBlocks, tokens: array) -> None:
        self.blocks = blocks
        self.tokens = tokens
        self.done = self.cached = 0

    def content(self, position: int) -> tuple[object, ...]:
        return (self.blocks.salt, position, self.tokens[: position + 1].tobytes())


class PrefixMachine(RuleBasedStateMachine):
    """Sequences begin with what is cached, grow, publish, and end; memory remembers what was written where."""

    @initialize(
        windows=st.lists(st.integers(1, 13), max_size=2),
        with_full=st.booleans(),
        sequences=st.floats(1, 3),
        with_promises=st.booleans(),
    )
    def open(self, windows: list[int], with_full: bool, sequences: float, with_promises: bool) -> None:
        self.groups = (*([full()] if with_full or not windows else []), *(sliding(window) for window in windows))
        self.with_promises = with_promises
        sizes = [int(blocks_for(group, BLOCK, LONGEST, STEP) * sequences) for group in self.groups]
        self.kv = KvCacheManager(spec(*self.groups), sizes, STEP, BlockHasher(b"model", BLOCK))
        self.memory = [dict[int, tuple[object, ...]]() for _ in self.groups]
        self.sequences: list[Sequence] = []

    @rule(
        stream=st.sampled_from(STREAMS),
        length=st.integers(1, LONGEST),
        salt=st.sampled_from([None, None, "a"]),
        retention=st.sampled_from([None, None, Retention(0), Retention(90, 1e-6)]),
    )
    def begin(self, stream: array, length: int, salt: str | None, retention: Retention | None) -> None:
        sequence = Sequence(self.kv.new_sequence(salt, retention), stream[:length])
        prefix = find(self.kv, sequence.blocks, sequence.tokens)
        assert len({len(table) for table in prefix}) == 1
        assert len(prefix[0]) * BLOCK < length
        if self.with_promises:
            admitted = self.kv.promise(sequence.blocks, length, prefix)
        else:
            admitted = self.kv.can_reserve(length, prefix)
        if not admitted:
            assert self.sequences, "one sequence always fits"
            return
        sequence.done = sequence.cached = self.kv.take(sequence.blocks, prefix)
        self.sequences.append(sequence)
        first_step = min(STEP, length - sequence.done)
        assert self.kv.reserve(sequence.blocks, sequence.done, sequence.done + first_step), "what was admitted fits"
        self.compute(sequence, first_step)

    @precondition(lambda self: self.sequences)
    @rule(data=st.data(), count=st.integers(1, STEP))
    def step(self, data: st.DataObject, count: int) -> None:
        sequence = data.draw(st.sampled_from(self.sequences))
        count = min(count, len(sequence.tokens) - sequence.done)
        if count < 1:
            return
        if self.kv.reserve(sequence.blocks, sequence.done, sequence.done + count):
            self.compute(sequence, count)
        else:
            assert not self.with_promises, "a promise was broken"
            assert len(self.sequences) > 1, "one sequence always fits"

    def compute(self, sequence: Sequence, count: int) -> None:
        """Write what is computed, read what is seen."""
        start, stop = sequence.done, sequence.done + count
        for index, (group, table) in enumerate(zip(self.groups, sequence.blocks.tables, strict=True)):
            pool, memory = self.kv.pools[index], self.memory[index]
            for position in range(start, stop):
                block = table[position // BLOCK]
                assert pool.references(block) == 1, "a shared block is written to"
                memory[block * BLOCK + position % BLOCK] = sequence.content(position)
            for position in range(max(0, start - group.window + 1) if group.window else 0, stop):
                block = table[position // BLOCK]
                assert memory[block * BLOCK + position % BLOCK] == sequence.content(position)
        sequence.done = stop
        self.kv.publish(sequence.blocks, sequence.tokens, stop)

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(self.sequences))
        blocks, length = sequence.blocks, data.draw(st.integers(0, sequence.done))
        seen = [group.first_visible(length) for group in self.kv._groups]
        whole = all(position >= first * BLOCK for position, first in zip(seen, blocks.first_kept, strict=True))
        if length < blocks.published * BLOCK or not whole:
            with pytest.raises(ValueError, match="cannot be cut"):
                self.kv.truncate(blocks, length)
            return
        self.kv.truncate(blocks, length)
        sequence.done = length
        assert all(len(table) == -(-length // BLOCK) for table in blocks.tables)

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(self.sequences))
        self.sequences.remove(sequence)
        self.kv.free(sequence.blocks)
        assert not sequence.blocks.hashes

    @invariant()
    def the_books_are_right(self) -> None:
        check_blocks(self.kv, [sequence.blocks for sequence in self.sequences])
        for index, group in enumerate(self.kv._groups):
            assert group.promised == sum((s.blocks.promised or [0] * 9)[index] for s in self.sequences)


PrefixMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=40)
TestPrefix = PrefixMachine.TestCase


def computed(kv: KvCacheManager, tokens: array, salt: str | None = None) -> SequenceBlocks:
    """A sequence whose tokens were computed, one a step, but for what it could take over."""
    blocks = kv.new_sequence(salt)
    done = kv.take(blocks, find(kv, blocks, tokens))
    for position in range(done, len(tokens)):
        assert kv.reserve(blocks, position, position + 1)
        kv.publish(blocks, tokens, position + 1)
    return blocks


def manager(*groups, blocks: int = 20) -> KvCacheManager:
    return KvCacheManager(spec(*groups), [blocks] * len(groups), 1, BlockHasher(b"model", BLOCK))


def found(kv: KvCacheManager, tokens: array, salt: str | None = None) -> list[list[int]]:
    return [list(table) for table in find(kv, kv.new_sequence(salt), tokens)]


def test_full_blocks_of_a_prompt_are_found_but_for_its_last_token():
    kv, tokens = manager(full()), STREAMS[0]
    kv.free(computed(kv, tokens[:14]))
    assert [len(found(kv, tokens[:n])[0]) for n in (1, 4, 5, 8, 9, 12, 13, 14, 30)] == [0, 0, 1, 1, 2, 2, 3, 3, 3]
    assert found(kv, STREAMS[2][:14]) == [[]]
    assert found(kv, tokens, "salt") == [[]]


def test_a_window_needs_only_what_the_next_token_sees():
    kv, tokens = manager(full(), sliding(5)), STREAMS[0]
    kv.free(computed(kv, tokens[:24]))
    whole, windowed = found(kv, tokens)
    assert FREED not in whole
    assert windowed[:5] == [FREED] * 5  # token 24 sees 20 to 24
    assert len(whole) == len(windowed) == 6
    kv.pools[1].share(windowed[5])  # lest the last block is given up
    for _ in range(19):
        kv.pools[1].allocate()
    assert [len(table) for table in found(kv, tokens)] == [6, 6]
    assert [len(table) for table in found(kv, tokens[:24])] == [0, 0]  # token 20 would see the block before


def test_blocks_that_several_hold_count_once_in_a_promise():
    tokens = STREAMS[0]
    kv = manager(full(), blocks=12)
    holder = kv.new_sequence()
    assert kv.promise(holder, 40, find(kv, holder, tokens[:33]))
    for position in range(33):
        assert kv.reserve(holder, position, position + 1)
        kv.publish(holder, tokens, position + 1)
    # 10 of 12 blocks are promised; 8 are held and full, and a second sequence needs two beyond those
    second, third = kv.new_sequence(), kv.new_sequence()
    prefix = find(kv, second, tokens)
    assert len(prefix[0]) == 8
    assert kv.promise(second, 40, prefix)
    assert kv.take(second, prefix) == 32
    assert not kv.promise(third, 33, find(kv, third, tokens[:33]))
    kv.free(holder)
    prefix = find(kv, third, tokens)
    assert kv.promise(third, 40, prefix)
    kv.take(third, prefix)
    for blocks in (second, third):
        assert kv.reserve(blocks, 32, 40)
    assert kv.pools[0].num_free == 0


def test_without_a_hasher_nothing_is_kept():
    kv = KvCacheManager(spec(full()), [20], 1)
    kv.free(computed(kv, STREAMS[0]))
    assert found(kv, STREAMS[0]) == [[]]
    assert not kv.pools[0]._keys
