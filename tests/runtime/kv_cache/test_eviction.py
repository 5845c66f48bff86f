"""The order in which cached blocks are given up, against a list that is searched."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from enginesmith.runtime.kv_cache.eviction import DEFAULT_PRIORITY, EvictionQueue, Retention

retentions = st.builds(Retention, st.sampled_from([0, 35, 36, 100]), st.sampled_from([None, 0.5, 1.0, 7.0]))


class QueueMachine(RuleBasedStateMachine):
    """Blocks come, are used again, and are given up, while time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.queue = EvictionQueue(lambda: self.now)
        self.model: list[tuple[int, int, float | None]] = []  # block, priority, when that lapses; by last use

    @rule(block=st.integers(0, 9), retention=retentions)
    def push(self, block: int, retention: Retention) -> None:
        if any(entry[0] == block for entry in self.model):
            self.use_again(block)
        self.queue.push(block, retention)
        lapse = None if retention.ttl is None else self.now + retention.ttl
        self.model.append((block, retention.priority, lapse))

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def use(self, data: st.DataObject) -> None:
        self.use_again(data.draw(st.sampled_from([entry[0] for entry in self.model])))

    @rule(seconds=st.sampled_from([0.1, 0.5, 3.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.model)
    @rule()
    def give_up(self) -> None:
        lapsed = [entry for entry in self.model if entry[2] is not None and entry[2] <= self.now]
        for entry in sorted(lapsed, key=lambda entry: (entry[2], entry[0])):
            self.model.remove(entry)
            self.model.append((entry[0], DEFAULT_PRIORITY, None))
        first = min(self.model, key=lambda entry: entry[1])
        self.model.remove(first)
        assert self.queue.pop() == first[0]

    def use_again(self, block: int) -> None:
        self.queue.remove(block)
        self.model = [entry for entry in self.model if entry[0] != block]

    @invariant()
    def nothing_piles_up(self) -> None:
        assert len(self.queue) == len(self.model)
        assert len(self.queue._lapses) <= 2 * 10 + 1


QueueMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40)
TestQueue = QueueMachine.TestCase


def test_an_empty_queue_gives_nothing():
    with pytest.raises(IndexError):
        EvictionQueue().pop()


def test_blocks_used_again_and_again_leave_no_trace():
    queue = EvictionQueue()
    for _ in range(10_000):
        queue.push(1, Retention(90, 3600))
        queue.remove(1)
    assert len(queue._lapses) <= 2
