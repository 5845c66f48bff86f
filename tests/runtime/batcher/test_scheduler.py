"""The scheduler alone, its requests played by stand-ins: budgets kept, order kept, nobody starves, no block is lost."""

from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginesmith.runtime.batcher.policies import CapacityPolicy
from enginesmith.runtime.batcher.scheduler import Plan, Scheduler
from enginesmith.runtime.kv_cache.manager import KvCacheManager
from enginesmith.runtime.kv_cache.sizing import blocks_for
from enginesmith.runtime.manifest import KvCacheSpec, KvDtype, KvGroup, KvGroupKind, Limits
from enginesmith.runtime.outputs import Metrics
from enginesmith.runtime.request import Status

BLOCK = 4
GROUPS = (
    KvGroup(kind=KvGroupKind.FULL, window=0, layers=(0,), bytes_per_block=1),
    KvGroup(kind=KvGroupKind.SLIDING_WINDOW, window=6, layers=(1,), bytes_per_block=1),
)
SPEC = KvCacheSpec(block_size=BLOCK, dtype=KvDtype.BF16, groups=GROUPS)


class FakeRequest:
    """As much of a request as the scheduler looks at."""

    def __init__(self, number: int, kv: KvCacheManager, prompt: int, output: int, priority: int = 0) -> None:
        self.queue_key = (priority, number)
        self.prompt_length = prompt
        self.token_ids = array("i", range(prompt))
        self.max_total_tokens = prompt + output
        self.num_computed = 0
        self.blocks = kv.new_sequence()
        self.status = Status.WAITING
        self.metrics = Metrics(0.0)

    @property
    def num_pending(self) -> int:
        return len(self.token_ids) - self.num_computed

    @property
    def first_row(self) -> int:
        return len(self.token_ids) - 1

    def __repr__(self) -> str:
        return f"request {self.queue_key}"


class Setting:
    """A scheduler with room for `sequences` of the longest sequences."""

    def __init__(self, limits: Limits, policy: CapacityPolicy, sequences: float = 1.0) -> None:
        sizes = [
            int(blocks_for(group, BLOCK, limits.max_seq_len, limits.max_num_tokens) * sequences) for group in GROUPS
        ]
        self.limits = limits
        self.kv = KvCacheManager(SPEC, sizes, limits.max_num_tokens)
        self.scheduler: Any = Scheduler(self.kv, limits, policy)
        self.count = 0

    def add(self, prompt: int, output: int, priority: int = 0) -> FakeRequest:
        request = FakeRequest(self.count, self.kv, prompt, output, priority)
        self.count += 1
        self.scheduler.add(request)
        return request

    def step(self) -> dict[FakeRequest, int]:
        """Schedule, check the plan, and move the requests as the engine would."""
        plan = self.scheduler.schedule()
        self.check(plan)
        for request, count in plan.counts.items():
            request.num_computed += count
            if not request.num_pending:
                request.token_ids.append(7)
            if len(request.token_ids) == request.max_total_tokens:
                self.scheduler.remove(request)
                request.status = Status.FINISHED
        return plan.counts

    def check(self, plan: Plan) -> None:
        counts: dict[Any, int] = plan.counts
        assert sum(counts.values()) == plan.num_tokens <= self.limits.max_num_tokens
        assert set(counts) <= set(self.scheduler.running)
        assert len(self.scheduler.running) <= self.limits.max_batch_size
        for queue in (self.scheduler.running, self.scheduler.waiting):
            assert [r.queue_key for r in queue] == sorted(r.queue_key for r in queue)
        for request, count in counts.items():
            assert 1 <= count <= request.num_pending
            for table in request.blocks.tables:
                assert len(table) == -(-(request.num_computed + count) // BLOCK)
        for request in self.scheduler.waiting:
            assert not any(request.blocks.tables)
        for request in self.scheduler.running:
            assert request in counts or request.num_pending > 1, "a decode did not move"
        if self.scheduler.running or self.scheduler.waiting:
            oldest = min([*self.scheduler.running, *self.scheduler.waiting], key=lambda r: r.queue_key)
            assert counts, "nothing moves"
            assert oldest in counts or oldest in self.scheduler.waiting


@settings(max_examples=150)
@given(
    policy=st.sampled_from(CapacityPolicy),
    max_batch=st.integers(1, 5),
    max_tokens=st.integers(1, 12),
    sequences=st.floats(1.0, 3.0),
    arrivals=st.lists(
        st.tuples(st.integers(0, 6), st.integers(1, 30), st.integers(1, 18), st.integers(-1, 1), st.integers(0, 90)),
        max_size=14,
    ),
)
def test_random_traffic(
    policy: CapacityPolicy,
    max_batch: int,
    max_tokens: int,
    sequences: float,
    arrivals: list[tuple[int, int, int, int, int]],
):
    limits = Limits(max_batch_size=max_batch, max_num_tokens=max_tokens, max_seq_len=48)
    setting = Setting(limits, policy, sequences)
    alive: list[tuple[FakeRequest, int]] = []
    for pause, prompt, output, priority, patience in arrivals:
        for _ in range(pause):
            setting.step()
        alive.append((setting.add(prompt, output, priority), patience))
        for request, limit in alive:
            if len(request.token_ids) - request.prompt_length >= limit and request.status is not Status.FINISHED:
                setting.scheduler.remove(request)
                request.status = Status.FINISHED
    for _ in range(20_000):
        if not setting.scheduler.running and not setting.scheduler.waiting:
            break
        setting.step()
    assert all(request.status is Status.FINISHED for request, _ in alive)
    assert setting.kv.usage == 0
    if policy is CapacityPolicy.GUARANTEED_NO_EVICT:
        assert setting.scheduler.num_preemptions == 0


def test_decodes_come_first_then_chunks_in_order():
    setting = Setting(
        Limits(max_batch_size=4, max_num_tokens=8, max_seq_len=64), CapacityPolicy.GUARANTEED_NO_EVICT, sequences=4
    )
    decoding = setting.add(3, 10)
    setting.step()
    first, second = setting.add(10, 4), setting.add(5, 4)
    assert list(setting.step().items()) == [(decoding, 1), (first, 7)]
    assert list(setting.step().items()) == [(decoding, 1), (first, 3), (second, 4)]
    assert list(setting.step().items()) == [(decoding, 1), (first, 1), (second, 1)]


def test_priority_goes_before_arrival():
    setting = Setting(
        Limits(max_batch_size=1, max_num_tokens=8, max_seq_len=64), CapacityPolicy.GUARANTEED_NO_EVICT, sequences=1
    )
    late_but_urgent = [setting.add(2, 1, priority=5), setting.add(2, 1), setting.add(2, 1, priority=-1)][::-1]
    served = [next(iter(setting.step())) for _ in range(3)]
    assert served == late_but_urgent


def test_guaranteed_no_evict_waits_for_the_worst_case():
    setting = Setting(
        Limits(max_batch_size=4, max_num_tokens=8, max_seq_len=64), CapacityPolicy.GUARANTEED_NO_EVICT, sequences=1
    )
    setting.add(2, 62)
    second = setting.add(2, 2)
    for _ in range(62):
        setting.step()
        assert second.status is Status.WAITING
    setting.step()
    assert second.status is not Status.WAITING


def test_max_utilization_preempts_the_newest_and_resumes_it():
    setting = Setting(
        Limits(max_batch_size=4, max_num_tokens=8, max_seq_len=32), CapacityPolicy.MAX_UTILIZATION, sequences=1.5
    )
    old, new = setting.add(4, 28), setting.add(4, 28)
    while not setting.scheduler.num_preemptions:
        setting.step()
    assert old.status is Status.RUNNING
    assert new.status is Status.WAITING
    assert new.num_computed == 0
    kept = len(new.token_ids)
    assert kept > 4
    while new.status is Status.WAITING:
        setting.step()
    assert len(new.token_ids) == kept
    while setting.scheduler.running:
        setting.step()
    assert (len(old.token_ids), len(new.token_ids)) == (32, 32)
    assert setting.kv.usage == 0


@pytest.mark.parametrize("policy", CapacityPolicy)
def test_an_empty_scheduler_plans_nothing(policy: CapacityPolicy):
    setting = Setting(Limits(max_batch_size=4, max_num_tokens=8, max_seq_len=32), policy)
    assert setting.step() == {}
