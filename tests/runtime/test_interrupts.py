"""Interrupts at every line: the caller gets them, the others their bits, and no block is lost."""

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from interrupts import Interrupter

from enginesmith.runtime.batcher.policies import CapacityPolicy
from enginesmith.runtime.llm import LLM
from enginesmith.runtime.outputs import CompletionOutput
from enginesmith.runtime.sampling_params import SamplingParams

SAMPLES = int(os.environ.get("ENGINESMITH_INTERRUPTS", "40"))  # 0: every line, which takes minutes
PROMPTS = ["the quick brown fox", "日本", "a dog"]
OTHERS = [
    SamplingParams(seed=1, max_tokens=30, ignore_eos=True, logprobs=2),
    SamplingParams(seed=2, max_tokens=40, min_tokens=8, logprobs=0, stop=["th", "xyz"]),
    SamplingParams(seed=3, max_tokens=25, ignore_eos=True, repetition_penalty=1.3, stop_token_ids=[7], min_tokens=12),
]
MINE = SamplingParams(seed=4, max_tokens=6, ignore_eos=True, logprobs=1)


def streamed(pieces: list[CompletionOutput]) -> CompletionOutput:
    """The pieces of a stream as one output."""
    whole = pieces[-1]
    whole.text = "".join(piece.text for piece in pieces)
    whole.token_ids = [token for piece in pieces for token in piece.token_ids]
    if whole.logprobs is not None:
        whole.logprobs = [entry for piece in pieces for entry in piece.logprobs or ()]
    return whole


def use_generate(llm: LLM) -> None:
    llm.generate(["mine", "the lazy dog jumps over"], MINE)


def use_stream(llm: LLM) -> None:
    stream = llm.stream("mine", MINE)
    next(stream)
    list(stream)


def use_logits(llm: LLM) -> None:
    llm.compute_logits(list(range(20)))


@pytest.fixture(params=CapacityPolicy)
def shared(toy_engine: Path, request: pytest.FixtureRequest) -> Iterator[LLM]:
    """An LLM with a cache so small that requests wait or are preempted."""
    with LLM(toy_engine, threads=1, kv_cache_memory=3200, capacity_policy=request.param) as llm:
        yield llm


@pytest.mark.parametrize("use", [use_generate, use_stream, use_logits])
@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_at_any_line(shared: LLM, use: Callable[[LLM], None], times: int):
    expected = [shared.generate(prompt, params)[0].outputs[0] for prompt, params in zip(PROMPTS, OTHERS, strict=True)]
    mine = shared.generate("mine", MINE)[0].outputs

    def serve(interrupter: Interrupter) -> None:
        streams = [shared.stream(prompt, params) for prompt, params in zip(PROMPTS, OTHERS, strict=True)]
        begun = [[next(stream)] for stream in streams]
        interrupter.run(lambda: use(shared))
        assert [streamed([*first, *rest]) for first, rest in zip(begun, streams, strict=True)] == expected
        if interrupter.raised > 1:  # the second may come as the first is cleaned up: whoever is next does it
            assert shared.generate("mine", MINE)[0].outputs == mine
        assert not shared.engine.has_unfinished
        assert [pool.num_free for pool in shared.engine.kv.pools] == [p.num_blocks for p in shared.engine.kv.pools]
        assert all(group.promised == 0 for group in shared.engine.kv._groups)

    counter = Interrupter()
    serve(counter)
    rng, every = random.Random(0), range(1, counter.lines + 1)
    interrupted = 0
    for line in every if not SAMPLES else rng.sample(every, SAMPLES // 2):
        interrupter = Interrupter(line, *(line + rng.randint(1, 60) for _ in range(times - 1)))
        serve(interrupter)
        interrupted += interrupter.raised > 0
    assert interrupted >= (len(every) if not SAMPLES else SAMPLES // 2) * 0.9  # the lines differ a little by run


def test_ctrl_c_while_another_thread_holds_the_engine(shared: LLM, monkeypatch: pytest.MonkeyPatch):
    expected = shared.generate(PROMPTS[0], OTHERS[0])[0].outputs
    step, stepping, go_on = shared.engine.executor.step, threading.Event(), threading.Event()

    def slow_step(slices: list, rows: list) -> None:
        stepping.set()
        go_on.wait(60)
        step(slices, rows)

    monkeypatch.setattr(shared.engine.executor, "step", slow_step)
    results: list[object] = []
    other = threading.Thread(target=lambda: results.append(shared.generate(PROMPTS[0], OTHERS[0])[0].outputs))
    other.start()
    assert stepping.wait(60)

    def press() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        go_on.set()

    timer = threading.Timer(0.2, press)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        shared.generate("mine", MINE)
    other.join(60)
    assert results == [expected]
    assert not shared.engine.has_unfinished
    assert shared.engine.kv.usage == 0


def test_an_exception_sent_to_another_thread(shared: LLM):
    """What ends a thread that is no main one: here at its every hundredth line or so."""

    class StoppedError(BaseException):
        pass

    expected = shared.generate(PROMPTS[0], OTHERS[0])[0].outputs[0]
    for line in range(300, 2000, 170):
        stream = shared.stream(PROMPTS[0], OTHERS[0])
        first = next(stream)
        interrupter = Interrupter(line, kind=StoppedError)
        other = threading.Thread(target=lambda: interrupter.run(lambda: use_generate(shared)))  # noqa: B023
        other.start()
        rest = list(stream)
        other.join(60)
        assert streamed([first, *rest]) == expected
        assert shared.engine.kv.usage == 0


def test_a_stream_that_is_collected_within_a_step(shared: LLM, monkeypatch: pytest.MonkeyPatch):
    expected = shared.generate(PROMPTS[0], OTHERS[0])[0].outputs
    forgotten = [shared.stream("forgotten", OTHERS[0])]
    next(forgotten[0])
    step = shared.engine.executor.step

    def forget(slices: list, rows: list) -> None:
        forgotten.clear()
        step(slices, rows)

    monkeypatch.setattr(shared.engine.executor, "step", forget)
    assert shared.generate(PROMPTS[0], OTHERS[0])[0].outputs == expected
    assert not forgotten
    assert shared.engine.kv.usage == 0
