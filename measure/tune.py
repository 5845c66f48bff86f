"""Throughput against latency over batch sizes and step sizes: what an engine is best served with.

Every setting serves the same requests, which arrive at the same instants: a Poisson process with a seed, of random
prompts. It is opened for that as a server would open it. Settings take turns, in rounds, so that what slows a machine
for a while slows all of them alike.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import RequestError
from ..progress import Progress, Task
from ..runtime.async_llm import AsyncLLM
from ..runtime.engine_dir import open_engine
from ..runtime.manifest import Limits
from ..runtime.outputs import Metrics
from ..runtime.runtime_config import RuntimeConfig
from ..runtime.sampling_params import SamplingParams

_SIZES = 4  # of batches and of steps that are tried: the engine's own, a half of it, and so on
_SMALLEST_STEP = 16  # tokens
_OVERLOAD = 2.0  # arrivals, in terms of what the engine sustains, when no rate is given
_SEED = 0


class Setting(NamedTuple):
    """Most sequences and most tokens in a step."""

    max_num_seqs: int
    max_num_tokens: int


@dataclass(frozen=True, kw_only=True)
class Load:
    """The requests: lengths are means, drawn from half of it to one and a half; `rate` is in requests a second."""

    requests: int
    prompt_tokens: int
    output_tokens: int
    rate: float | None = None
    """None: twice what the engine sustains, so that it limits the throughput and not they."""


@dataclass(frozen=True)
class Run:
    """What one run of a setting measured, in seconds and tokens a second."""

    throughput: float
    """Output tokens, from the first arrival to the last token."""
    ttft_p50: float
    ttft_p99: float
    between_p50: float
    between_p99: float
    """Of the times between a request's tokens, all requests together."""


class Request(NamedTuple):
    """One that arrives `at` seconds after the first."""

    at: float
    prompt: list[int]
    output_tokens: int


def settings_of(limits: Limits) -> list[Setting]:
    """What is tried: an engine's own sizes first."""
    batches = [size for size in (limits.max_batch_size >> shift for shift in range(_SIZES)) if size]
    steps = [limits.max_num_tokens >> shift for shift in range(_SIZES)]
    steps = [size for size in steps if size >= _SMALLEST_STEP] or steps[:1]
    return [Setting(batch, step) for step in steps for batch in batches if step >= batch]


class Tuning:
    """Runs of an engine's settings. `measure` adds to `runs`; what there is may be looked at when it is interrupted."""

    def __init__(self, engine: Path, load: Load, config: RuntimeConfig) -> None:
        self.runs: dict[Setting, list[Run]] = {}
        self.rate = load.rate
        self._engine, self._load, self._config = engine, load, config
        self._manifest = open_engine(engine).manifest

    def measure(self, repetitions: int, time_limit: float, progress: Progress) -> None:
        """Run each setting so often, as far as `time_limit` seconds go. The first run of all is not counted.

        Raises RequestError for an engine that is too small for the requests, or too slow for a run within the limit.
        """
        self._require_room()
        end = time.monotonic() + time_limit
        settings = settings_of(self._manifest.limits)
        with progress.task(f"{len(settings)} settings, {repetitions} times", len(settings) * repetitions + 1) as task:
            if not self._calibrate(settings[0], end):
                raise RequestError(
                    f"{self._load.requests} requests take longer than the time limit of {time_limit:g} s: "
                    "raise --time-limit, or lower --requests"
                )
            task.advance()
            self._rounds(settings, repetitions, end, task)

    def medians(self) -> dict[Setting, Run]:
        """The median of every figure over a setting's runs."""
        return {setting: median(runs) for setting, runs in sorted(self.runs.items())}

    def _require_room(self) -> None:
        limit, longest = self._manifest.limits.max_seq_len, _longest(self._load)
        if longest > limit:
            raise RequestError(
                f"requests have up to {longest} tokens, half as many again as --prompt-tokens and --output-tokens say, "
                f"and this engine's max_seq_len is {limit}: lower them, or rebuild it with --max-seq-len {longest}"
            )

    def _calibrate(self, setting: Setting, end: float) -> bool:
        """A run with all requests at once, which tells the rate that the engine sustains."""
        start = time.monotonic()
        done = self._run(setting, float("inf"), end)
        if self.rate is None:
            self.rate = _OVERLOAD * self._load.requests / (time.monotonic() - start)
        return done is not None

    def _rounds(self, settings: Sequence[Setting], repetitions: int, end: float, task: Task) -> None:
        order = random.Random(_SEED)
        for _ in range(repetitions):
            for setting in order.sample(settings, len(settings)):
                run = self._run(setting, self.rate or 1.0, end)
                if run is None:
                    return
                self.runs.setdefault(setting, []).append(run)
                task.advance()

    def _run(self, setting: Setting, rate: float, end: float) -> Run | None:
        """None when it was not done at its `end`."""
        config = replace(self._config, max_num_seqs=setting.max_num_seqs, max_num_tokens=setting.max_num_tokens)
        llm = AsyncLLM(self._engine, config, verify=False)
        requests = draw_requests(self._load, rate, self._manifest.model.vocab_size)
        try:
            return summary(asyncio.run(_measured(llm, requests, end)))
        except TimeoutError:
            return None


def draw_requests(load: Load, rate: float, vocab_size: int) -> list[Request]:
    """The same ones for every setting."""
    draw = np.random.RandomState(_SEED)
    at = np.cumsum(draw.exponential(1.0, load.requests)) / rate
    prompts = draw.randint(*_range(load.prompt_tokens), load.requests)
    outputs = draw.randint(*_range(load.output_tokens), load.requests)
    return [
        Request(float(when - at[0]), draw.randint(0, vocab_size, prompt).tolist(), int(output))
        for when, prompt, output in zip(at, prompts, outputs, strict=True)
    ]


def summary(served: Sequence[Metrics]) -> Run:
    """The figures of a run."""
    first, last = min(one.arrival_time for one in served), max(one.token_times[-1] for one in served)
    ttfts = [one.ttft or 0.0 for one in served]
    between = [seconds for one in served for seconds in one.inter_token_latencies] or [0.0]
    tokens = sum(len(one.token_times) for one in served)
    ttft_p50, ttft_p99 = np.percentile(ttfts, (50, 99)).tolist()
    between_p50, between_p99 = np.percentile(between, (50, 99)).tolist()
    return Run(tokens / (last - first), ttft_p50, ttft_p99, between_p50, between_p99)


def median(runs: Sequence[Run]) -> Run:
    """Each figure's own median."""
    return Run(*(statistics.median(values) for values in zip(*(_figures(run) for run in runs), strict=True)))


def best(medians: dict[Setting, Run], between_p99: float, ttft_p99: float | None) -> Setting | None:
    """The setting of the highest throughput under the bounds, in seconds; None when none is under them."""
    within = {
        setting: run
        for setting, run in medians.items()
        if run.between_p99 <= between_p99 and (ttft_p99 is None or run.ttft_p99 <= ttft_p99)
    }
    return max(within, key=lambda setting: within[setting].throughput, default=None)


async def _measured(llm: AsyncLLM, requests: Sequence[Request], end: float) -> list[Metrics]:
    """Serve, and close the engine. Raises TimeoutError at `end`."""
    async with llm:
        await _follow(llm, Request(0.0, [0, 1], 2))  # makes the engine's memory warm
        return await asyncio.wait_for(_serve(llm, requests), end - time.monotonic())


async def _serve(llm: AsyncLLM, requests: Sequence[Request]) -> list[Metrics]:
    """Submit each at its time, and wait for all."""
    start = time.monotonic()
    following = []
    try:
        for request in requests:
            await asyncio.sleep(start + request.at - time.monotonic())
            following.append(asyncio.create_task(_follow(llm, request)))
        return await asyncio.gather(*following)
    finally:
        for task in following:
            task.cancel()


async def _follow(llm: AsyncLLM, request: Request) -> Metrics:
    params = SamplingParams(temperature=0.0, max_tokens=request.output_tokens, ignore_eos=True)
    async for output in llm.generate(request.prompt, params):
        if output.finished:
            return output.metrics
    raise AssertionError("a request ended without its last output")


def _range(mean: int) -> tuple[int, int]:
    return max(1, mean // 2), mean + mean // 2 + 1


def _longest(load: Load) -> int:
    return _range(load.prompt_tokens)[1] + _range(load.output_tokens)[1] - 2


def _figures(run: Run) -> tuple[float, ...]:
    return run.throughput, run.ttft_p50, run.ttft_p99, run.between_p50, run.between_p99
