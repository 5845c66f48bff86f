"""AsyncLLM on the toy engine: pieces add up, cancelling aborts, event loops come and go."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from enginesmith.errors import EngineClosedError, QueueFullError, RequestError, RequestTimeoutError
from enginesmith.runtime.async_llm import AsyncLLM, OutputIterator
from enginesmith.runtime.llm import LLM
from enginesmith.runtime.outputs import CompletionOutput
from enginesmith.runtime.sampling_params import SamplingParams

PARAMS = SamplingParams(seed=1, max_tokens=60, ignore_eos=True, logprobs=1)
PROMPTS = ["the quick brown fox", "日本", "a dog"]


def run(test: Callable[[AsyncLLM], Awaitable[None]], engine: Path, max_queued: int | None = None) -> None:
    """A coroutine with an engine of its own; afterwards every block is free."""

    async def body() -> None:
        async with AsyncLLM(engine, threads=1, max_queued=max_queued) as llm:
            await test(llm)
            while llm.stats().num_requests_running or llm.stats().num_requests_waiting:
                await asyncio.sleep(0.001)
            assert not any(group.used for group in llm.stats().groups)

    asyncio.run(asyncio.wait_for(body(), 60))


@asynccontextmanager
async def slow(llm: AsyncLLM) -> AsyncIterator[None]:
    """Steps that wait until the block ends, or a little."""
    step, go_on = llm.engine.executor.step, threading.Event()

    def slow_step(slices: Any, rows: Any) -> None:
        go_on.wait(0.01)
        step(slices, rows)

    llm.engine.executor.step = slow_step  # type: ignore[method-assign]
    try:
        yield
    finally:
        go_on.set()


async def collected(outputs: OutputIterator) -> CompletionOutput:
    whole = CompletionOutput("", [], logprobs=[])
    async for output in outputs:
        (piece,) = output.outputs
        whole.text += piece.text
        whole.token_ids += piece.token_ids
        whole.logprobs = [*(whole.logprobs or ()), *(piece.logprobs or ())]
        assert (piece.finish_reason is not None) == output.finished
        whole.finish_reason, whole.stop_reason = piece.finish_reason, piece.stop_reason
    return whole


def test_pieces_add_up_to_what_llm_generates(toy_engine: Path):
    with LLM(toy_engine, threads=1) as llm:
        expected = [output.outputs[0] for output in llm.generate(PROMPTS, PARAMS)]

    async def test(llm: AsyncLLM) -> None:
        together = await asyncio.gather(*(collected(llm.generate(prompt, PARAMS)) for prompt in PROMPTS))
        assert list(together) == expected
        merged = llm.generate(PROMPTS[0], PARAMS)
        await llm.drain()
        assert [output.outputs[0].text async for output in merged] == [expected[0].text]

    run(test, toy_engine)


@pytest.mark.parametrize("how", ["cancel", "aclose", "drop", "break"])
def test_whoever_goes_away_frees_the_blocks(toy_engine: Path, how: str):
    async def test(llm: AsyncLLM) -> None:
        async with slow(llm):
            outputs = llm.generate("a", PARAMS)
            if how == "cancel":
                task = asyncio.create_task(collected(outputs))
                await asyncio.sleep(0.03)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            elif how == "break":
                async for _ in outputs:
                    break
            else:
                await anext(outputs)
            if how == "aclose":
                await outputs.aclose()
                assert [output async for output in outputs] == []
            del outputs
            while not llm.stats().totals.finished_requests["abort"]:
                await asyncio.sleep(0.001)

    run(test, toy_engine)


def test_abort_by_id(toy_engine: Path):
    async def test(llm: AsyncLLM) -> None:
        async with slow(llm):
            outputs = llm.generate("a", PARAMS, request_id="mine")
            with pytest.raises(RequestError, match="request_id 'mine' is that of a request under way"):
                llm.generate("a", PARAMS, request_id="mine")
            await anext(outputs)
            (shown,) = (await llm.cache_map()).requests
            assert (shown.request_id, shown.phase, shown.prompt_tokens) == ("mine", "decode", 1)
            assert all(shown.blocks)
            assert llm.abort("mine")
            assert not llm.abort("yours")
        *_, last = [output async for output in outputs]
        assert last.finished
        assert last.outputs[0].finish_reason == "abort"

    run(test, toy_engine)


def test_errors(toy_engine: Path):
    async def test(llm: AsyncLLM) -> None:
        with pytest.raises(RequestError, match="together exceed"):
            llm.generate("a", PARAMS.replace(max_tokens=97))
        async with slow(llm):
            kept = [llm.generate("a", PARAMS, timeout=0.05), llm.generate("a", PARAMS)]
            with pytest.raises(QueueFullError, match="2 requests are waiting"):
                llm.generate("a", PARAMS)
            with pytest.raises(RequestTimeoutError, match=r"timeout of 0\.05 s"):
                await collected(kept[0])
            assert not await llm.drain(0.01)
            with pytest.raises(EngineClosedError, match="takes no more requests"):
                llm.generate("a", PARAMS)
        assert await llm.drain()
        assert (await anext(kept[1])).finished

    run(test, toy_engine, max_queued=2)


def test_event_loops_that_end(toy_engine: Path):
    llm = AsyncLLM(toy_engine, threads=1)

    async def leave() -> OutputIterator:
        outputs = llm.generate("left behind", PARAMS)
        await anext(outputs)
        return outputs

    async def stay() -> CompletionOutput:
        return await collected(llm.generate("a", PARAMS))

    left = [asyncio.run(leave()) for _ in range(3)]
    assert len(asyncio.run(stay()).token_ids) == 60
    assert len(left) == 3
    asyncio.run(llm.drain())
    assert not any(group.used for group in llm.stats().groups)
    llm.close()


def test_outputs_are_awaited_where_the_request_was_submitted(toy_engine: Path):
    async def test(llm: AsyncLLM) -> None:
        outputs = llm.generate(PROMPTS[0], PARAMS)

        def elsewhere() -> None:
            with pytest.raises(RequestError, match="event loop that it was submitted on"):
                asyncio.run(collected(outputs))

        await asyncio.to_thread(elsewhere)
        assert len((await collected(outputs)).token_ids) == 60

    run(test, toy_engine)
