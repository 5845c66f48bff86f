"""Ten times the load that a server sustains: `python benchmarks/serve_burst.py ENGINE [--seconds 60]`.

Starts `enginesmith serve ENGINE`, asks each of a few prompts alone, finds how many requests a second it sustains with
16 at once, then sends ten times as many over 200 connections, of which every tenth is dropped midway. Ends with 1
unless every answer is 200 or 429, every whole answer is the one that its prompt got alone, every block is free at the
end, and the memory has not grown.
"""

import argparse
import asyncio
import itertools
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from server_process import Server, serving

PROMPTS, CONNECTIONS = 24, 200
WORDS = ("the", "a", "sun", "moon", "and", "over", "under", "river", "stone", "bird", "sings", "falls")
MOST_GROWTH = 32 << 20  # bytes: what caches of finite size and the allocator may take


def body(prompt: int) -> dict[str, Any]:
    """A request that is always the same for one number: half of them greedy, half with a seed."""
    words = random.Random(prompt).choices(WORDS, k=20)
    sampling = {"temperature": 0} if prompt % 2 else {"temperature": 0.8, "seed": prompt}
    return {"prompt": " ".join(words), "max_tokens": 8 + prompt, "ignore_eos": True} | sampling


async def ask(server: Server, prompt: int) -> tuple[int, str]:
    """Status and text."""
    answer = await server.client.post("/v1/completions", json=body(prompt))
    return answer.status_code, answer.json()["choices"][0]["text"] if answer.status_code == 200 else ""


async def drop(server: Server, prompt: int) -> int:
    """Hang up after the first piece."""
    async with server.client.stream("POST", "/v1/completions", json=body(prompt) | {"stream": True}) as answer:
        async for _ in answer.aiter_bytes():
            break
        return answer.status_code


async def sustained(server: Server, at_once: int, seconds: float) -> float:
    """Requests a second, so many at once."""
    end, done = time.monotonic() + seconds, 0

    async def client(first: int) -> None:
        nonlocal done
        number = first
        while time.monotonic() < end:
            status, _ = await ask(server, number % PROMPTS)
            done += status == 200
            number += at_once

    start = time.monotonic()
    await asyncio.gather(*(client(number) for number in range(at_once)))
    return done / (time.monotonic() - start)


async def burst(server: Server, rate: float, seconds: float, alone: list[str]) -> tuple[Counter[int], int]:
    """Statuses, and how many whole answers differ from those alone."""
    statuses: Counter[int] = Counter()
    wrong = 0

    numbers = itertools.count()
    start = time.monotonic()

    async def connection() -> None:
        nonlocal wrong
        for number in numbers:
            await asyncio.sleep(max(0.0, start + number / rate - time.monotonic()))
            if time.monotonic() > start + seconds:
                return
            prompt = number % PROMPTS
            if number % 10 == 0:
                statuses[await drop(server, prompt)] += 1
                continue
            status, text = await ask(server, prompt)
            statuses[status] += 1
            wrong += status == 200 and text != alone[prompt]

    await asyncio.gather(*(connection() for _ in range(CONNECTIONS)))
    return statuses, wrong


async def main(engine: Path, seconds: float) -> int:
    async with serving(engine, "--max-queue", 32, connections=CONNECTIONS) as server:
        alone = [(await ask(server, prompt))[1] for prompt in range(PROMPTS)]
        rate = await sustained(server, 16, max(5.0, seconds / 6))
        await server.idle()
        before = server.held.memory
        statuses, wrong = await burst(server, 10 * rate, seconds, alone)
        used, after = await server.idle(), server.held.memory
        status = await server.stop()
    print(f"sustained {rate:.1f} requests/s; burst of {10 * rate:.1f} requests/s for {seconds:.0f} s")
    print(f"sent: {sum(statuses.values()) / seconds:.1f} requests/s, as many as the connections carried")
    print("answers:", ", ".join(f"{count} of {status}" for status, count in sorted(statuses.items())))
    print(f"answers that differ from the same request alone: {wrong}")
    print(f"blocks in use at the end: {used:.0%}; memory {before / 1e6:.1f} MB before, {after / 1e6:.1f} MB after")
    print(f"exit status after SIGTERM: {status}")
    good = set(statuses) <= {200, 429} and not wrong and not used and after - before < MOST_GROWTH and status == 0
    return 0 if good else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("engine", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    sys.exit(asyncio.run(main(arguments.engine, arguments.seconds)))
