"""What a viewer of the server's page costs an engine: decoding of a full batch, watched and not, in turns.

python benchmarks/page.py ENGINE [--rounds 5] [--seconds 4]
"""

import argparse
import asyncio
import statistics
import time
from pathlib import Path

from enginesmith import AsyncLLM, SamplingParams
from enginesmith.serve.json_response import to_json
from enginesmith.serve.page.feed import Feed
from enginesmith.serve.page.snapshot import snapshot


async def _decode(llm: AsyncLLM) -> None:
    """One stream after another, as long as it is let."""
    params = SamplingParams(temperature=0.0, max_tokens=llm.manifest.limits.max_seq_len // 2, ignore_eos=True)
    while True:
        async for _ in llm.generate([5, 6, 7], params):
            pass


async def _watch(feed: Feed) -> None:
    while True:
        await feed.snapshot()


async def _rate(llm: AsyncLLM, seconds: float) -> float:
    before, start = llm.stats().totals.generation_tokens, time.perf_counter()
    await asyncio.sleep(seconds)
    return (llm.stats().totals.generation_tokens - before) / (time.perf_counter() - start)


async def _cpu_of_a_snapshot(llm: AsyncLLM) -> tuple[float, int]:
    """Milliseconds of this thread, and bytes."""
    cache, stats = await llm.cache_map(), llm.stats()
    start = time.thread_time()
    for _ in range(50):
        to_json(snapshot(stats, cache, 0.0))
    return (time.thread_time() - start) / 50 * 1e3, len(to_json(snapshot(stats, cache, 0.0)))


async def _main(engine: Path, rounds: int, seconds: float) -> None:
    async with AsyncLLM(engine) as llm:
        streams = [asyncio.create_task(_decode(llm)) for _ in range(llm.manifest.limits.max_batch_size)]
        await asyncio.sleep(seconds)
        feed, alone, watched = Feed(llm), [], []
        for turn in range(2 * rounds):
            if turn % 4 in (0, 3):
                alone.append(await _rate(llm, seconds))
                continue
            viewer = asyncio.create_task(_watch(feed))
            watched.append(await _rate(llm, seconds))
            viewer.cancel()
        cost, size = await _cpu_of_a_snapshot(llm)
        for stream in streams:
            stream.cancel()
    for name, rates in (("unwatched", alone), ("watched", watched)):
        print(f"{name:>9}: {statistics.median(rates):.1f} tokens/s ({min(rates):.1f} to {max(rates):.1f})")
    print(f"a snapshot: {cost:.2f} ms of the event loop's thread, {size} bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    arguments = parser.parse_args()
    asyncio.run(_main(arguments.engine, arguments.rounds, arguments.seconds))
