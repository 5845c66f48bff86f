"""A server that runs: clients that nobody here wrote, disconnects, signals."""

import asyncio
import json
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import tenacity
from http_api import Server
from openai import APIStatusError, AsyncOpenAI, AuthenticationError, BadRequestError, OpenAI, RateLimitError

LONG = {"prompt": "abc", "max_tokens": 390, "ignore_eos": True, "stream": True}
MESSAGES: Any = [{"role": "user", "content": "hello"}]


@contextmanager
def _streaming(server: Server, body: dict[str, Any]) -> Iterator[Iterator[str]]:
    """The events of a stream, of which the first has come."""
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=30) as answer:
        assert answer.status_code == 200
        events = (line for line in answer.iter_lines() if line)
        next(events)
        yield events


def _metric(server: Server, name: str) -> float:
    text = httpx.get(f"{server.url}/metrics").text
    found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
    assert found is not None, text
    return float(found[1])


def test_the_openai_client(server: Server) -> None:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        (model,) = client.models.list().data
        assert client.models.retrieve(model.id).id == model.id
        options: Any = {"model": model.id, "max_tokens": 10, "temperature": 0}
        completion = client.completions.create(prompt="abc", logprobs=2, **options)
        assert completion.usage is not None
        assert completion.usage.prompt_tokens == 3
        chat = client.chat.completions.create(messages=MESSAGES, logprobs=True, top_logprobs=2, **options)
        stream = client.chat.completions.create(
            messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **options
        )
        *pieces, last = list(stream)
        text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
        assert text == chat.choices[0].message.content
        assert last.usage is not None
        assert last.usage.completion_tokens == chat.usage.completion_tokens  # type: ignore[union-attr]
        with pytest.raises(BadRequestError) as caught:
            client.chat.completions.create(messages=MESSAGES, **options | {"temperature": -1})
        assert caught.value.param == "temperature"


def test_the_asynchronous_client(server: Server) -> None:
    async def ask() -> list[str]:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            model = (await client.models.list()).data[0].id

            async def answer() -> str:
                stream = await client.chat.completions.create(
                    model=model, messages=MESSAGES, stream=True, max_tokens=20, temperature=0
                )
                return "".join([piece.choices[0].delta.content or "" async for piece in stream])

            return await asyncio.gather(*(answer() for _ in range(6)))

    answers = asyncio.run(ask())
    assert len(set(answers)) == 1


def test_a_client_that_retries_when_the_queue_is_full(start_server: Callable[..., Any]) -> None:
    with (
        start_server("--max-queue", 1) as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client,
    ):
        refusals: list[RateLimitError] = []

        @tenacity.retry(
            retry=tenacity.retry_if_exception_type(RateLimitError),
            wait=tenacity.wait_fixed(0.05),
            stop=tenacity.stop_after_delay(30),
            before_sleep=lambda state: refusals.append(state.outcome.exception()),  # type: ignore[union-attr, arg-type]
        )
        def ask() -> str:
            return (
                client.completions.create(model="tiny-llama", prompt="abc", max_tokens=200, temperature=0)
                .choices[0]
                .text
            )

        with ThreadPoolExecutor(24) as threads:
            answers = list(threads.map(lambda _: ask(), range(48)))
        assert len(set(answers)) == 1
        assert refusals
        assert refusals[0].response.headers["retry-after"] == "1"
        assert refusals[0].code == "rate_limit_exceeded"


def test_a_client_that_hangs_up_frees_its_blocks(server: Server) -> None:
    aborted = _metric(server, "vllm:kv_cache_usage_perc")
    with _streaming(server, LONG):
        pass  # it hangs up here, in the midst of it
    with socket.create_connection(("127.0.0.1", server.port)) as connection:  # and here before the first byte
        body = json.dumps(LONG | {"stream": False}).encode()
        head = (
            f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        )
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
    until = time.monotonic() + 10
    while _metric(server, "vllm:num_requests_running") or _metric(server, "vllm:num_requests_waiting"):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert _metric(server, "vllm:kv_cache_usage_perc") == aborted == 0


def test_sigterm_lets_requests_end(start_server: Callable[..., Any]) -> None:
    with start_server() as server:
        with _streaming(server, LONG) as events:
            server.process.send_signal(signal.SIGTERM)
            *_, done = events
            assert done == "data: [DONE]"
        assert server.process.wait(timeout=30) == 0


def test_sigterm_waits_no_longer_than_it_was_told(start_server: Callable[..., Any]) -> None:
    with start_server("--drain-timeout", 0) as server, _streaming(server, LONG) as events:
        server.process.send_signal(signal.SIGTERM)
        *_, error, _ = events
        assert '"error"' in error
        assert server.process.wait(timeout=30) == 0


def test_a_second_sigterm_ends_it_at_once(start_server: Callable[..., Any]) -> None:
    with start_server() as server, _streaming(server, LONG | {"prompt": ["abc"] * 100}):
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)  # two signals at once are one
        assert server.stop() == 143


def test_a_port_in_use_is_an_error(server: Server, cli: Callable[..., Any], engine: Any) -> None:
    done = cli("serve", engine, "--port", server.port)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: cannot listen on 127.0.0.1, port {server.port}: Address already in use")


def test_keys_guard_a_server(start_server: Callable[..., Any]) -> None:
    with start_server(env={"ENGINESMITH_API_KEY": "sesame"}) as server:
        for key, good in (("wrong", False), ("sesame", True)):
            with OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0) as client:
                if good:
                    assert client.models.list().data
                else:
                    with pytest.raises(AuthenticationError) as caught:
                        client.models.list()
                    assert isinstance(caught.value, APIStatusError)
        assert server.stop(signal.SIGINT) == 0
