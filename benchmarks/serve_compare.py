"""Servers beside each other under the same load, in turns, round by round.

    python benchmarks/serve_compare.py --tokenizer ENGINE/tokenizer/tokenizer.json
        --server enginesmith "enginesmith serve ENGINE --port {port}"
        --server llama-cpp-python "peers/llamacpp/bin/python -m llama_cpp.server --model MODEL.gguf --n_threads 2
            --interrupt_requests false --port {port}"

Each server is started, asked once to warm up, then by as many clients at once as `--concurrency` says, each of which
streams one chat after another for `--seconds`. Prompts are random words, never the same twice. Tokens of an answer are
those of its text by the tokenizer given, for servers send several in an event. Shown are medians over the rounds; time
to first token and between tokens are medians over the requests of a run.
"""

import argparse
import asyncio
import json
import random
import shlex
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

import httpx
from tokenizers import Tokenizer

WORDS = ("sun", "moon", "river", "stone", "bird", "apple", "table", "green", "cloud", "winter", "street", "paper")
PROMPT_WORDS = 48
STARTS_WITHIN = 120.0  # seconds


@dataclass(frozen=True)
class Answer:
    """One streamed answer; times in seconds since the load began."""

    start: float
    first: float
    last: float
    text: str


class Run(NamedTuple):
    """What a load measured."""

    requests: float
    """A second."""
    tokens: float
    """Of outputs, a second."""
    first_token: float
    """Median seconds."""
    between_tokens: float
    """Median seconds."""


@asynccontextmanager
async def started(command: str) -> AsyncIterator[httpx.AsyncClient]:
    """A server on a free port, once it lists a model; it is ended with the block."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = shlex.split(command.replace("{port}", str(port)))
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*arguments, stdout=quiet, stderr=quiet)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=600) as client:
            end = time.monotonic() + STARTS_WITHIN
            while not await _listens(client):
                if process.returncode is not None or time.monotonic() > end:
                    raise SystemExit(f"did not start: {shlex.join(arguments)}")
                await asyncio.sleep(0.2)
            yield client
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _listens(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/v1/models")).status_code == 200
    except httpx.TransportError:
        return False


async def ask(client: httpx.AsyncClient, model: str, draw: random.Random, max_tokens: int, began: float) -> Answer:
    """One chat, streamed."""
    content = "Write a long story of: " + " ".join(draw.choices(WORDS, k=PROMPT_WORDS))
    body = {"model": model, "messages": [{"role": "user", "content": content}], "max_tokens": max_tokens}
    start, times, text = time.perf_counter(), [], ""
    async with client.stream("POST", "/v1/chat/completions", json=body | {"temperature": 0, "stream": True}) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: {") and (piece := _content(json.loads(line[6:]))):
                times.append(time.perf_counter())
                text += piece
    if not times:
        raise SystemExit(f"an answer of {answer.status_code} without text")
    return Answer(start - began, times[0] - began, times[-1] - began, text)


def _content(event: dict) -> str:
    return "".join(choice["delta"].get("content") or "" for choice in event.get("choices", ()))


async def load(client: httpx.AsyncClient, model: str, at_once: int, args: argparse.Namespace, seed: str) -> Run:
    """So many clients at once, for so long; requests that run then are waited for and counted."""
    began = time.perf_counter()

    async def one(number: int) -> list[Answer]:
        draw, answers = random.Random(f"{seed} {number}"), []
        while time.perf_counter() < began + args.seconds:
            answers.append(await ask(client, model, draw, args.max_tokens, began))
        return answers

    answers = [answer for some in await asyncio.gather(*map(one, range(at_once))) for answer in some]
    seconds = max(answer.last for answer in answers)
    lengths = [len(args.tokenizer.encode(answer.text, add_special_tokens=False).ids) for answer in answers]
    between = [(a.last - a.first) / (length - 1) for a, length in zip(answers, lengths, strict=True) if length > 1]
    first = statistics.median(answer.first - answer.start for answer in answers)
    return Run(len(answers) / seconds, sum(lengths) / seconds, first, statistics.median(between))


async def main(args: argparse.Namespace) -> None:
    runs: dict[tuple[str, int], list[Run]] = {}
    for number in range(args.rounds):
        for name, command in args.server:
            async with started(command) as client:
                model = (await client.get("/v1/models")).json()["data"][0]["id"]
                await ask(client, model, random.Random(number), 8, 0.0)
                for at_once in args.concurrency:
                    run = await load(client, model, at_once, args, f"{number} {at_once}")
                    runs.setdefault((name, at_once), []).append(run)
                    print(json.dumps({"server": name, "at once": at_once, "round": number} | run._asdict()), flush=True)
    print("\n| server | at once | requests/s | tokens/s | first token ms | between tokens ms |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for (name, at_once), several in sorted(runs.items(), key=lambda item: item[0][1]):
        requests, tokens, first, between = (statistics.median(values) for values in zip(*several, strict=True))
        print(f"| {name} | {at_once} | {requests:.2f} | {tokens:.1f} | {first * 1e3:.0f} | {between * 1e3:.1f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--server", nargs=2, action="append", required=True, metavar=("NAME", "COMMAND"))
    parser.add_argument("--tokenizer", type=Tokenizer.from_file, required=True)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    sys.exit(asyncio.run(main(parser.parse_args())))
