"""The loop: callers come and go, are interrupted and forked; the thread lives, dies and is closed; no block is lost."""

import gc
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from enginesmith.errors import (
    EngineClosedError,
    EngineDeadError,
    EngineError,
    QueueFullError,
    RequestError,
    RequestTimeoutError,
)
from enginesmith.runtime.batcher.policies import CapacityPolicy
from enginesmith.runtime.llm import LLM
from enginesmith.runtime.outputs import CompletionOutput
from enginesmith.runtime.sampling_params import SamplingParams
from enginesmith.runtime.stream import RequestStream

PROMPTS = ["the quick brown fox", "日本", "a dog"]
PARAMS = [
    SamplingParams(seed=1, max_tokens=30, ignore_eos=True, logprobs=2),
    SamplingParams(seed=2, max_tokens=40, min_tokens=8, logprobs=0, stop=["th", "xyz"]),
    SamplingParams(seed=3, max_tokens=25, ignore_eos=True, repetition_penalty=1.3, stop_token_ids=[7], min_tokens=12),
]
LONG = SamplingParams(seed=4, max_tokens=60, ignore_eos=True)


class Gate:
    """Holds the engine in the midst of a step until it is opened."""

    def __init__(self, llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stepping, self.open = threading.Event(), threading.Event()
        step = llm.engine.executor.step

        def held(slices: list, rows: list) -> None:
            self.stepping.set()
            assert self.open.wait(10)
            step(slices, rows)

        monkeypatch.setattr(llm.engine.executor, "step", held)


@pytest.fixture(params=CapacityPolicy)
def shared(toy_engine: Path, request: pytest.FixtureRequest) -> Iterator[LLM]:
    """An LLM with a cache so small that requests wait or are preempted."""
    with LLM(toy_engine, threads=1, kv_cache_memory=3200, capacity_policy=request.param) as llm:
        yield llm


def submitted(llm: LLM, params: SamplingParams = LONG, **options: float) -> RequestStream:
    """A request that nobody follows."""
    stream = llm._admission.admit("nobody", params, **options)  # type: ignore[arg-type]
    llm._loop.submit([stream])
    return stream


def assert_nothing_is_left(llm: LLM) -> None:
    """Once the loop has done what it was told, and what runs is finished."""

    def check() -> None:
        assert not llm.engine.has_unfinished
        assert not llm._loop.num_queued
        assert not llm._loop.num_arriving
        assert not llm._loop._core._streams
        assert [pool.num_free for pool in llm.engine.kv.pools] == [p.num_blocks for p in llm.engine.kv.pools]
        assert all(group.promised == 0 for group in llm.engine.kv._groups)

    while llm._loop.call(lambda: llm.engine.has_unfinished):
        pass
    llm._loop.call(check)


def streamed(pieces: list[CompletionOutput]) -> CompletionOutput:
    """The pieces of a stream as one output."""
    whole = pieces[-1]
    whole.text = "".join(piece.text for piece in pieces)
    whole.token_ids = [token for piece in pieces for token in piece.token_ids]
    if whole.logprobs is not None:
        whole.logprobs = [entry for piece in pieces for entry in piece.logprobs or ()]
    return whole


def test_a_stream_that_nobody_pulls_runs(llm: LLM):
    stream = submitted(llm)
    assert llm.drain(60)
    output = stream.take()
    assert output is not None
    assert output.finished
    assert output.outputs == [stream.whole().outputs[0]]
    assert stream.take() is None


def test_neither_submit_nor_abort_nor_stats_wait_for_a_step(llm: LLM, monkeypatch: pytest.MonkeyPatch):
    gate = Gate(llm, monkeypatch)
    first = submitted(llm)
    assert gate.stepping.wait(60)
    second = submitted(llm)
    llm._loop.abort([first])
    stats = llm.stats()
    assert (stats.num_requests_running, stats.num_requests_waiting) == (1, 1)
    assert not first.finished
    gate.open.set()
    assert llm.drain(60)
    assert [s.requests[0].finish_reason for s in (first, second)] == ["abort", "length"]


def test_aborts_at_random_times_return_every_block(shared: LLM):
    expected = [shared.generate(prompt, params)[0].outputs[0] for prompt, params in zip(PROMPTS, PARAMS, strict=True)]
    rng = random.Random(0)
    for _ in range(30):
        news: SimpleQueue[list[RequestStream]] = SimpleQueue()
        others = [shared._admission.admit("other", LONG, news.put) for _ in range(rng.randint(1, 4))]
        mine = [shared.stream(prompt, params) for prompt, params in zip(PROMPTS, PARAMS, strict=True)]
        begun = [[next(stream)] for stream in mine]
        shared._loop.submit(others)
        for other in rng.sample(others, len(others)):
            for _ in range(rng.randint(0, 3)):
                news.get(timeout=60)
            shared._loop.abort([other])
        assert [streamed([*first, *rest]) for first, rest in zip(begun, mine, strict=True)] == expected
        assert_nothing_is_left(shared)


@pytest.mark.parametrize("use", ["generate", "stream", "compute_logits"])
def test_ctrl_c_ends_the_callers_requests_alone(shared: LLM, use: str, monkeypatch: pytest.MonkeyPatch):
    expected = shared.generate(PROMPTS[0], PARAMS[0])[0].outputs
    calls: dict[str, Callable[[], object]] = {
        "generate": lambda: shared.generate(["mine", "too"], LONG),
        "stream": lambda: list(shared.stream("mine", LONG)),
        "compute_logits": lambda: shared.compute_logits(list(range(20))),
    }
    with monkeypatch.context() as patch:
        gate = Gate(shared, patch)
        results: list[object] = []
        other = threading.Thread(target=lambda: results.append(shared.generate(PROMPTS[0], PARAMS[0])[0].outputs))
        other.start()
        assert gate.stepping.wait(60)
        main = threading.main_thread().ident or 0
        timer = threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            calls[use]()
        gate.open.set()
        other.join(60)
    assert results == [expected]
    assert_nothing_is_left(shared)


def test_interrupts_at_any_time(shared: LLM):
    """Of a thread that is no main one, too: Python raises an exception in it between two of its instructions."""
    import ctypes

    class StoppedError(BaseException):
        pass

    expected = shared.generate(PROMPTS[0], PARAMS[0])[0].outputs[0]
    rng, stopped = random.Random(0), 0
    for _ in range(40):
        ready, outcome = threading.Event(), list[object]()

        def use() -> None:
            try:
                ready.set()  # noqa: B023
                shared.generate(["mine", "the lazy dog jumps over"], LONG)
            except StoppedError as error:
                outcome.append(error)  # noqa: B023

        stream = shared.stream(PROMPTS[0], PARAMS[0])
        first = next(stream)
        caller = threading.Thread(target=use)
        caller.start()
        ready.wait(60)
        time.sleep(rng.random() * 0.004)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(caller.ident or 0), ctypes.py_object(StoppedError))
        rest = list(stream)
        caller.join(60)
        stopped += len(outcome)
        assert streamed([first, *rest]) == expected
        assert_nothing_is_left(shared)
    assert stopped > 10


def test_a_signal_handler_may_use_the_engine(llm: LLM):
    expected = llm.generate(PROMPTS[0], PARAMS[0])[0].outputs
    answers: list[object] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: answers.append(llm.generate(PROMPTS[0], PARAMS[0])[0].outputs))
    try:
        stream = llm.stream("mine", LONG)
        first = next(stream)
        signal.raise_signal(signal.SIGUSR1)
        assert sum(len(piece.token_ids) for piece in (first, *stream)) == 60
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert answers == [expected]


def test_a_stream_that_is_collected_is_aborted(llm: LLM):
    stream = llm.stream("forgotten", LONG)
    next(stream)
    del stream
    gc.collect()
    assert_nothing_is_left(llm)
    assert llm.stats().totals.finished_requests["abort"] == 1


def test_the_queue_is_bounded(llm: LLM, monkeypatch: pytest.MonkeyPatch):
    llm._loop._max_queued = 2
    with monkeypatch.context() as patch:
        gate = Gate(llm, patch)
        running = submitted(llm)
        assert gate.stepping.wait(60)
        with pytest.raises(QueueFullError, match="2 requests are waiting already") as caught:
            llm._loop.submit([llm._admission.admit("a", LONG) for _ in range(2)])  # the first is still in its step
        assert caught.value.limit == 2
        waiting = submitted(llm)
        with pytest.raises(QueueFullError):
            llm.generate("a", LONG)
        gate.open.set()
        assert llm.drain(60)
    assert [s.requests[0].finish_reason for s in (running, waiting)] == ["length"] * 2


def test_a_timeout(llm: LLM, monkeypatch: pytest.MonkeyPatch):
    step = llm.engine.executor.step
    monkeypatch.setattr(llm.engine.executor, "step", lambda *work: (time.sleep(0.02), step(*work)))
    late, other = submitted(llm, timeout=0.1), submitted(llm, LONG.replace(max_tokens=20))
    llm.drain(60)
    assert other.whole().outputs[0].finish_reason == "length"
    output = late.take()
    assert output is not None
    count = len(output.outputs[0].token_ids)
    assert 0 < count < 20
    with pytest.raises(RequestTimeoutError, match=rf"timeout of 0\.1 s: {count} tokens were generated"):
        late.take()
    with pytest.raises(RequestError, match="timeout must be a number of seconds above 0, got 0"):
        llm._admission.admit("a", LONG, timeout=0)


def test_draining(llm: LLM, monkeypatch: pytest.MonkeyPatch):
    gate = Gate(llm, monkeypatch)
    stream = submitted(llm)
    assert gate.stepping.wait(60)
    assert not llm.drain(0.05)
    with pytest.raises(EngineClosedError, match="takes no more requests"):
        llm.generate("a", LONG)
    gate.open.set()
    assert llm.drain(60)
    assert stream.whole().outputs[0].finish_reason == "length"
    llm.close()
    assert llm.drain(60)


def test_closing_while_requests_run(toy_engine: Path, monkeypatch: pytest.MonkeyPatch):
    llm = LLM(toy_engine, threads=1)
    step = llm.engine.executor.step
    monkeypatch.setattr(llm.engine.executor, "step", lambda *work: (time.sleep(0.005), step(*work)))
    stream = llm.stream("the fox", LONG)
    next(stream)
    errors: list[Exception] = []

    def use() -> None:
        try:
            while True:
                llm.generate(["a", "b"], LONG)
        except Exception as error:
            errors.append(error)

    others = [threading.Thread(target=use) for _ in range(3)]
    for other in others:
        other.start()
    time.sleep(0.02)
    llm.close()
    for other in others:
        other.join(60)
    with pytest.raises(EngineClosedError, match="closed before the request was finished"):
        list(stream)
    assert len(errors) == 3
    assert all(isinstance(error, EngineClosedError) and "was closed" in str(error) for error in errors)
    for use_it in (lambda: llm.generate("a"), lambda: llm.compute_logits([1])):
        with pytest.raises(EngineClosedError, match="the engine was closed: open it again to use it"):
            use_it()


def test_an_engine_forgotten_is_closed(toy_engine: Path):
    llm = LLM(toy_engine, threads=1)
    thread = llm._loop._thread
    llm.generate("a", LONG)
    del llm
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_a_thread_that_dies(llm: LLM, monkeypatch: pytest.MonkeyPatch):
    begun = llm.stream("the fox", LONG)
    next(begun)

    def fault() -> None:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(llm.engine.scheduler, "schedule", fault)
    message = r"thread ended by a fault of its own: ZeroDivisionError\('a mistake'\); open the engine again"
    for use in (lambda: list(begun), lambda: llm.generate("a", LONG), lambda: llm.compute_logits([1])):
        with pytest.raises(EngineDeadError, match=message):
            use()
    llm._loop._thread.join(10)
    assert not llm._loop._thread.is_alive()


def test_a_follower_that_fails_is_gone(llm: LLM):
    def fail(streams: list[RequestStream]) -> None:
        raise RuntimeError("Event loop is closed")

    stream = llm._admission.admit("a", LONG, fail)
    llm._loop.submit([stream])
    assert llm.generate("b", LONG)[0].outputs[0].finish_reason == "length"
    assert_nothing_is_left(llm)
    assert stream.requests[0].finish_reason == "abort"


def test_a_forked_process_is_told(llm: LLM):
    llm.generate("a", LONG)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        message = "nothing"
        try:
            llm.generate("a", LONG)
        except EngineError as error:
            message = str(error)
        llm.close()
        os.write(write, message.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        assert "forked from the one that opened the engine" in said.read()
    assert os.waitpid(child, 0)[1] == 0
    assert llm.generate("a", LONG)[0].outputs[0].finish_reason == "length"


def test_stats_add_up(llm: LLM):
    outputs = llm.generate(PROMPTS, PARAMS)
    llm.generate(PROMPTS[0], PARAMS[0])
    stats, totals = llm.stats(), llm.stats().totals
    count = sum(len(output.outputs[0].token_ids) for output in outputs) + 30
    prompts = sum(len(output.prompt_token_ids) for output in outputs) + len(outputs[0].prompt_token_ids)
    assert (totals.generation_tokens, totals.prompt_tokens) == (count, prompts)
    assert sum(totals.time_to_first_token.counts) == 4
    assert sum(totals.inter_token_latency.counts) == count - 4
    assert totals.request_generation_tokens.sum == count
    assert totals.iteration_tokens.sum == prompts + count - 4 - totals.cached_tokens
    assert sum(totals.finished_requests.values()) == 4
    assert stats.num_requests_running == stats.num_requests_waiting == 0
    assert [(group.total, group.used) for group in stats.groups] == [(p.num_blocks, 0) for p in llm.engine.kv.pools]
    assert stats.groups[0].cached > 0
