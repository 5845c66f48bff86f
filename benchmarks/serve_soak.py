"""A server under everything that clients do: `python benchmarks/serve_soak.py ENGINE [--seconds 600] [--seed 0]`.

Clients ask with random parameters, hang up at random moments, send bodies that are wrong and bytes that are no HTTP.
Ends with 1 unless no answer is a 500, every refusal tells its reason, the last request is answered as the first was,
every block is free at the end, and the server has no more threads, descriptors and processes than at the beginning.
Memory may grow after the second fifth by what caches of finite size and the allocator take.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from server_process import Held, Server, serving

CLIENTS = 16
INTERVAL = 2.0  # seconds between two looks at what the server holds
MOST_GROWTH = 32 << 20  # bytes
ROUTES = ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize")
PAGES = ("/health", "/metrics", "/v1/models", "/", "/openapi.json", "/version", "/none", "/v1/models/x")
WORDS = ("the", "sun", "über", "月", "🌊", "falls", "\u202e", "{}", "</s>", "\n", "e\u0301")
FORMS: tuple[dict[str, Any], ...] = (
    {"regex": "(yes|no)+"},
    {"choice": ["red", "green"]},
    {"json": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"$ref": "#"}}, "required": ["a"]}},
    {"json": {"type": "array", "items": {"enum": [1, "two", None]}, "maxItems": 5}},
    {"json_object": True},
    {"grammar": 'root ::= "a" root | "b"'},
    {"json": {"not": {}}},
    {"regex": "(a{1,200}){1,200}"},
)
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
ODD = (None, True, -1, 0, 2**63, 1e308, "", "x" * 2000, [], [[]], {}, {"a": [None]}, [1, "a"], "\0", 10**30)
RAW = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{",
    b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n" * 50,
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
)


@dataclass
class Log:
    """What came about."""

    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)

    def count(self, status: int, asked: Any, answer: str) -> None:
        """An answer; what is wrong with it is kept."""
        self.statuses[str(status)] += 1
        if status >= 400 and not _is_error(answer):
            self.wrong.append(f"{status} without a reason: {answer[:300]} to {str(asked)[:1000]}")
        if (status >= 500 and status not in (503, 504)) or '"code":"internal"' in answer:
            self.wrong.append(f"{status}: {answer[:300]} to {str(asked)[:1000]}")


def _is_error(answer: str) -> bool:
    try:
        return bool(json.loads(answer)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return False


def text(draw: random.Random, most: int) -> str:
    """Words, some of them odd."""
    return " ".join(draw.choices(WORDS, k=draw.randint(1, most)))


def request(draw: random.Random) -> tuple[str, dict[str, Any]]:
    """A route and a body that is mostly right."""
    optional: dict[str, Any] = {
        "temperature": draw.choice((0, 0.7, 2)),
        "top_p": draw.uniform(0.01, 1),
        "top_k": draw.choice((-1, 0, 1, 50)),
        "min_p": draw.random(),
        "n": draw.randint(1, 6),
        "seed": draw.randint(-(2**63), 2**63),
        "stop": draw.choice(("a", ["e", "the"], ["\n"])),
        "stop_token_ids": [draw.randint(0, 60)],
        "logit_bias": {str(draw.randint(0, 90)): draw.uniform(-100, 100)},
        "bad_words": [text(draw, 2)],
        "no_repeat_ngram_size": draw.randint(1, 4),
        "repetition_penalty": draw.uniform(0.5, 2),
        "presence_penalty": draw.uniform(-2, 2),
        "frequency_penalty": draw.uniform(-2, 2),
        "min_tokens": draw.randint(0, 8),
        "ignore_eos": draw.random() < 0.5,
        "cache_salt": draw.choice(("a", "b")),
        "cache_priority": draw.randint(0, 100),
        "priority": draw.randint(-3, 3),
        "return_token_ids": True,
        "structured_outputs": draw.choice(FORMS),
    }
    body = {name: optional[name] for name in draw.sample(sorted(optional), draw.randint(0, 6))}
    body["max_tokens"] = draw.choice((1, 8, 40))
    body["stream"] = draw.random() < 0.5
    if draw.random() < 0.5:
        lengths = 1 if draw.random() < 0.8 else draw.randint(2, 5)
        more: dict[str, Any] = {"logprobs": draw.randint(0, 20), "echo": True, "prompt_logprobs": draw.randint(0, 20)}
        body |= {name: more[name] for name in draw.sample(sorted(more), draw.choice((0, 0, 1, 2)))}
        return ROUTES[0], body | {"prompt": [text(draw, draw.choice((4, 60))) for _ in range(lengths)]}
    messages = [{"role": draw.choice(("user", "assistant", "system")), "content": text(draw, 30)} for _ in range(3)]
    if draw.random() < 0.2:
        body |= {"tools": [TOOL], "tool_choice": draw.choice(("auto", "required", "none"))}
    if draw.random() < 0.3:
        body |= {"logprobs": True, "top_logprobs": draw.randint(0, 20)}
    return ROUTES[1], body | {"messages": messages}


def damaged(draw: random.Random) -> tuple[str, bytes]:
    """A route and a body with a fault: another type, a cut, wrong bytes, or another route's body."""
    route, body = request(draw)
    if draw.random() < 0.6:
        for name in draw.sample(sorted(body), min(2, len(body))):
            body[name] = draw.choice(ODD)
        return draw.choice(ROUTES), json.dumps(body).encode()
    data = bytearray(json.dumps(body).encode())
    for _ in range(draw.randint(1, 4)):
        data[draw.randrange(len(data))] = draw.randrange(256)
    return route, bytes(data[: draw.randint(0, len(data))])


async def ask(server: Server, draw: random.Random, log: Log) -> None:
    """A request whose answer is read to the end."""
    route, body = request(draw)
    answer = await server.client.post(route, json=body)
    log.count(answer.status_code, body, answer.text)


async def hang_up(server: Server, draw: random.Random, log: Log) -> None:
    """A request whose client goes away, before or while it is answered."""
    route, body = request(draw)
    with suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(draw.choice((0.002, 0.05, 0.5))):
            answer = await server.client.post(route, json=body | {"max_tokens": 200, "ignore_eos": True})
            log.count(answer.status_code, body, answer.text)
    log.statuses["hung up"] += 1


async def send_damaged(server: Server, draw: random.Random, log: Log) -> None:
    """A body with a fault."""
    route, data = damaged(draw)
    kind = draw.choice(("application/json",) * 9 + ("text/plain",))
    answer = await server.client.post(route, content=data, headers={"content-type": kind})
    log.count(answer.status_code, data, answer.text)


async def look(server: Server, draw: random.Random, log: Log) -> None:
    """The routes that only tell."""
    route = draw.choice(
        ("/health", "/metrics", "/v1/models", "/", "/openapi.json", "/version", "/none", "/v1/models/x")
    )
    answer = await server.client.get(route)
    log.count(answer.status_code, route, answer.text)


async def watch(server: Server, draw: random.Random, log: Log) -> None:
    """A viewer of the page, for a moment."""
    with suppress(TimeoutError):
        async with asyncio.timeout(draw.uniform(0, 1)), server.client.stream("GET", "/page/events") as answer:
            async for _ in answer.aiter_bytes():
                pass
    log.statuses["watched"] += 1


async def send_raw(server: Server, draw: random.Random, log: Log) -> None:
    """Bytes that are no request, or many, or a part of one; half of the time the sending half is closed."""
    address = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(draw.uniform(0, 2)):
            writer.write(draw.choice(RAW))
            await writer.drain()
            if draw.random() < 0.5:
                writer.write_eof()
            while await reader.read(1 << 16):
                pass
    writer.transport.abort()
    log.statuses["raw"] += 1


ACTIONS = (ask, ask, ask, ask, hang_up, hang_up, send_damaged, send_damaged, look, watch, send_raw)


async def client(server: Server, draw: random.Random, log: Log, end: float) -> None:
    """One of the clients."""
    while time.monotonic() < end:
        try:
            await draw.choice(ACTIONS)(server, draw, log)
        except httpx.TransportError as error:
            if server.process.returncode is not None:
                log.wrong.append(f"the server ended: {server.process.returncode}")
                return
            log.wrong.append(f"no answer: {error!r}")


async def soak(server: Server, seconds: float, seed: int) -> Log:
    """So long."""
    log, end = Log(), time.monotonic() + seconds
    clients = [asyncio.create_task(client(server, random.Random(f"{seed} {at}"), log, end)) for at in range(CLIENTS)]
    while time.monotonic() < end and server.process.returncode is None:
        log.held.append(server.held)
        await asyncio.sleep(INTERVAL)
    await asyncio.gather(*clients)
    return log


async def main(engine: Path, seconds: float, seed: int) -> int:
    options = ("--max-queue", 32, "--request-timeout", 30, "--kv-cache-memory", "64MB", "--keep-alive-timeout", 60)
    async with serving(engine, *options, connections=CLIENTS) as server:
        last = {"prompt": "the sun", "max_tokens": 8, "temperature": 0}
        before = (await server.client.post(ROUTES[0], json=last)).json()["choices"][0]["text"]
        log = await soak(server, seconds, seed)
        used = await server.idle()
        after = (await server.client.post(ROUTES[0], json=last)).json()["choices"][0]["text"]
        await server.client.aclose()
        await asyncio.sleep(1)  # until the server has seen that
        rest = server.held
        status = await server.stop()
    return verdict(log, rest, used=used, same=before == after, status=status)


def verdict(log: Log, rest: Held, *, used: float, same: bool, status: int) -> int:
    """Tell what came about; 0 if all is well. `rest`: what was held at the end, idle; `used`: blocks then."""
    fifth = max(1, len(log.held) // 5)
    parts = log.held[fifth : 2 * fifth], log.held[-fifth:]
    early, late = (statistics.median(held.memory for held in part) for part in parts)
    first, most = log.held[0], max(held.threads for held in log.held[: 2 * fifth])
    print("answers:", ", ".join(f"{count} of {name}" for name, count in sorted(log.statuses.items())))
    print(f"memory: {early / 1e6:.1f} MB in the second fifth, {late / 1e6:.1f} MB in the last")
    print(f"threads: {rest.threads} at the end, at most {most} in the first two fifths")
    print(f"descriptors: {first.descriptors} and {rest.descriptors}; processes: {first.children} and {rest.children}")
    print(f"blocks in use at the end: {used:.0%}; the last answer is as the first: {same}; exit status: {status}")
    for wrong in log.wrong[:20]:
        print("WRONG", wrong)
    steady = rest.threads <= most and rest.descriptors <= first.descriptors + 8 and rest.children <= first.children + 2
    good = steady and late - early < MOST_GROWTH and same and not (log.wrong or used or status)
    return 0 if good else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("engine", type=Path)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    sys.exit(asyncio.run(main(arguments.engine, arguments.seconds, arguments.seed)))
