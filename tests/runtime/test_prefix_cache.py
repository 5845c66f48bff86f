"""Requests that begin alike: a warm cache gives what a cold one gives, whatever happens beside and before."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kv_groups import BLOCK, full, sliding, spec
from kv_invariants import check_blocks
from model_executor import ModelExecutor

from enginesmith.errors import EngineError
from enginesmith.runtime.admission import Admission
from enginesmith.runtime.batcher.policies import CapacityPolicy
from enginesmith.runtime.engine import Engine
from enginesmith.runtime.kv_cache.block_hash import BlockHasher
from enginesmith.runtime.kv_cache.manager import KvCacheManager
from enginesmith.runtime.kv_cache.sizing import blocks_for
from enginesmith.runtime.llm import LLM
from enginesmith.runtime.manifest import KvGroup, Limits, Manifest
from enginesmith.runtime.request import Request
from enginesmith.runtime.sampling_params import SamplingParams
from enginesmith.runtime.tokenizer import NoTokenizer

LONGEST = 48
STREAMS = [[seed] * 9 + [(seed + 1) * i % 5 for i in range(LONGEST)] for seed in (1, 2)]


class Setting:
    """An engine on `ModelExecutor`, with room for `sequences` of the longest sequences."""

    def __init__(
        self,
        manifest: Manifest,
        groups: Sequence[KvGroup] = (full(),),
        *,
        step: int = 16,
        policy: CapacityPolicy = CapacityPolicy.GUARANTEED_NO_EVICT,
        sequences: float = 4,
        long_rope_after: int | None = None,
    ) -> None:
        limits = Limits(max_batch_size=4, max_num_tokens=step, max_seq_len=LONGEST)
        model = replace(manifest.model, vocab_size=7, eos_token_ids=(), long_rope_after=long_rope_after)
        self.manifest = replace(manifest, model=model, limits=limits, kv_cache=spec(*groups))
        sizes = [int(blocks_for(group, BLOCK, LONGEST, step) * sequences) for group in groups]
        self.kv = KvCacheManager(
            self.manifest.kv_cache, sizes, step, BlockHasher(self.manifest.digest, BLOCK, long_rope_after)
        )
        self.executor = ModelExecutor(self.manifest)
        self.engine = Engine(self.executor, self.kv, limits, policy, long_rope_after)  # type: ignore[arg-type]
        self.admission = Admission(self.manifest, NoTokenizer(), self.kv)
        self.requests: list[Request] = []

    def add(self, prompt: list[int], output: int = 1, priority: int = 0, **cache: Any) -> Request:
        params = SamplingParams(max_tokens=output, **cache)
        (request,) = self.admission.admit(prompt, params, priority=priority).requests
        self.requests.append(request)
        self.engine.add([request])
        return request

    def run(self, prompt: list[int], output: int = 1, **cache: Any) -> int:
        """Serve a request to its end; how many of its tokens were cached."""
        request = self.add(prompt, output, **cache)
        while not request.finished:
            self.step()
        return request.metrics.num_cached_tokens

    def step(self) -> None:
        self.engine.step()
        check_blocks(self.kv, [request.blocks for request in self.engine.scheduler.unfinished])

    def fail_soon(self, times: int) -> None:
        """The next steps of the network, so many, fail when they are half written."""
        errors = [EngineError()] * times

        def fail() -> None:
            if errors:
                raise errors.pop()

        self.executor.fault = fail

    def drain(self) -> None:
        self.executor.fault = lambda: None
        for _ in range(10_000):
            if not self.engine.has_unfinished:
                break
            self.step()
        check_blocks(self.kv, [])
        assert self.kv.usage == 0
        assert all(group.promised == 0 for group in self.kv._groups)

    def check_outputs(self) -> None:
        for request in self.requests:
            prompt, output = request.token_ids[: request.prompt_length].tolist(), request.output().token_ids
            assert request.finished
            assert isinstance(request.error, EngineError | None), "the executor found something wrong"
            assert output == self.executor.alone(prompt, len(output))
            if request.finish_reason != "abort":
                assert len(output) == request.sampling.params.max_tokens


arrivals = st.tuples(
    st.just("add"),
    st.sampled_from(STREAMS),
    st.integers(1, 36),
    st.integers(1, 12),
    st.fixed_dictionaries(
        {},
        optional={
            "priority": st.integers(-1, 1),
            "cache_salt": st.just("salt"),
            "cache_priority": st.sampled_from([0, 90]),
        },
    ),
)
actions = st.one_of(
    arrivals,
    arrivals,
    st.tuples(st.just("step"), st.integers(1, 9)),
    st.tuples(st.just("step"), st.integers(1, 9)),
    st.tuples(st.just("abort"), st.integers(0, 9)),
    st.tuples(st.just("fault"), st.integers(1, 2)),
)


@settings(max_examples=200)
@given(
    windows=st.lists(st.integers(1, 13), max_size=2),
    with_full=st.booleans(),
    policy=st.sampled_from(CapacityPolicy),
    step=st.integers(4, 20),
    sequences=st.floats(1, 3),
    long_rope_after=st.sampled_from([None, None, 20]),
    script=st.lists(actions, max_size=30),
)
def test_a_warm_cache_gives_what_a_cold_one_gives(
    toy_manifest: Manifest,
    windows: list[int],
    with_full: bool,
    policy: CapacityPolicy,
    step: int,
    sequences: float,
    long_rope_after: int | None,
    script: list[tuple[Any, ...]],
):
    groups = (*([full()] if with_full or not windows else []), *(sliding(window) for window in windows))
    setting = Setting(
        toy_manifest, groups, step=step, policy=policy, sequences=sequences, long_rope_after=long_rope_after
    )
    for action, *details in script:
        match action:
            case "add":
                stream, prompt, output, options = details
                setting.add(stream[:prompt], output, **options)
            case "step":
                for _ in range(details[0]):
                    setting.step()
            case "abort":
                setting.engine.abort(setting.requests[details[0] :][:1])
            case _:
                setting.fail_soon(details[0])
    setting.drain()
    setting.check_outputs()
    for request in setting.requests[:]:  # all of them again, on what is left of the cache
        setting.add(request.token_ids[: request.prompt_length].tolist(), len(request.token_ids) % 4 + 1)
    setting.drain()
    setting.check_outputs()
    if policy is CapacityPolicy.GUARANTEED_NO_EVICT:
        assert setting.engine.scheduler.num_preemptions == 0


def test_only_what_is_new_is_computed(toy_manifest: Manifest):
    setting = Setting(toy_manifest, [full(), sliding(6)])
    prompt = STREAMS[0][:22]
    assert setting.run(prompt) == 0
    before = setting.executor.num_computed
    assert setting.run(prompt) == 20
    assert setting.executor.num_computed == before + 2
    assert setting.run(prompt[:20]) == 16  # a token must be left to compute
    assert setting.run([*prompt[:13], 0, 1, 2]) == 12
    scheduler = setting.engine.scheduler
    assert scheduler.prefix_cache_queries == 22 + 22 + 20 + 16
    assert scheduler.prefix_cache_hits == 20 + 16 + 12


def test_outputs_are_cached_for_the_next_turn(toy_manifest: Manifest):
    setting = Setting(toy_manifest)
    setting.run(STREAMS[0][:10], 8)
    first = setting.requests[0]
    assert setting.run([*first.token_ids, 1, 2, 3]) == 16  # the last token drawn was never computed


def test_salts_are_apart(toy_manifest: Manifest):
    setting = Setting(toy_manifest)
    prompt = STREAMS[0][:13]
    assert setting.run(prompt, cache_salt="a") == 0
    assert setting.run(prompt) == 0
    assert setting.run(prompt, cache_salt="b") == 0
    assert setting.run(prompt, cache_salt="a") == 12
    assert setting.run(prompt) == 12


def test_the_long_factors_of_longrope_are_apart(toy_manifest: Manifest):
    setting = Setting(toy_manifest, long_rope_after=20)
    assert setting.run(STREAMS[0][:20]) == 0
    assert setting.run(STREAMS[0][:21]) == 0
    assert setting.run(STREAMS[0][:20]) == 16
    assert setting.run(STREAMS[0][:22]) == 20


def test_the_priority_decides_what_is_kept(toy_manifest: Manifest):
    setting = Setting(toy_manifest, sequences=1)  # 12 blocks
    dear, plain, other = STREAMS[0][:17], [3] * 17, [4] * 30
    setting.run(dear, cache_priority=90)
    setting.run(plain)
    setting.run(other)
    assert setting.run(dear) == 16
    assert setting.run(plain) < 16


def test_a_preempted_request_finds_its_own_blocks(toy_manifest: Manifest):
    setting = Setting(toy_manifest, policy=CapacityPolicy.MAX_UTILIZATION, sequences=1.5)
    old, new = setting.add(STREAMS[0][:8], 36), setting.add(STREAMS[1][:8], 36)
    while not setting.engine.scheduler.num_preemptions:
        setting.step()
    length, hits = len(new.token_ids), setting.engine.scheduler.prefix_cache_hits
    assert not new.num_computed
    setting.engine.abort([old])
    setting.step()
    assert setting.engine.scheduler.prefix_cache_hits - hits >= length - 2 * BLOCK
    assert new.metrics.num_cached_tokens == 0
    setting.drain()
    setting.check_outputs()


def test_shared_blocks_let_more_requests_run(toy_manifest: Manifest):
    setting = Setting(toy_manifest, sequences=1.5)  # 18 blocks; a request needs 11
    prompt = STREAMS[0][:40]
    setting.run(prompt)
    for _ in range(4):
        setting.add(prompt, 4)
    setting.step()
    assert len(setting.engine.scheduler.running) == 4
    setting.drain()
    setting.check_outputs()


def test_metrics_and_the_switch(toy_engine: Any):
    prompt, params = list(range(100, 130)), SamplingParams(seed=1, max_tokens=20, ignore_eos=True, logprobs=3)
    with LLM(toy_engine, threads=1, prefix_cache=False) as llm:
        cold = [llm.generate(prompt, params)[0] for _ in range(2)]
    with LLM(toy_engine, threads=1) as llm:
        warm = [llm.generate(prompt, params)[0] for _ in range(2)]
        logits = llm.compute_logits(prompt)
        assert llm.generate(prompt, params)[0].metrics.num_cached_tokens == 28
        assert (llm.compute_logits(prompt) == logits).all()
    assert [output.metrics.num_cached_tokens for output in (*cold, *warm)] == [0, 0, 0, 28]
    assert all(output.outputs == cold[0].outputs for output in (*cold, *warm))


@pytest.mark.parametrize("prompt", [[5], [5] * BLOCK])
def test_the_shortest_prompts_are_computed(toy_manifest: Manifest, prompt: list[int]):
    setting = Setting(toy_manifest)
    assert [setting.run(prompt) for _ in range(2)] == [0, 0]
    setting.check_outputs()
