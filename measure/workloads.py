"""The workloads that engines are measured with, everywhere the same: see docs/benchmarks.md."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ..errors import RequestError
from ..progress import Progress
from ..runtime.llm import LLM
from ..runtime.outputs import RequestOutput
from ..runtime.sampling_params import SamplingParams

_MIXED_REQUESTS = 32


class Figure(StrEnum):
    """What a workload's tokens per second count."""

    DECODE = "decode"  # tokens of one stream after its first
    PREFILL = "prefill"  # tokens of the prompt until the first token
    BATCH = "batch"  # output tokens of all requests


class Workload(StrEnum):
    """W1, W2 and W3 fit engines of ordinary length; W4 and W5 are for long contexts and for large batches."""

    W1 = "w1"
    W2 = "w2"
    W3 = "w3"
    W4 = "w4"
    W5 = "w5"

    @property
    def summary(self) -> str:
        return {
            Workload.W1: "W1 decode: prompt 128, 128 new tokens, one stream",
            Workload.W2: "W2 prefill: prompt 1024, 1 new token",
            Workload.W3: "W3 batch: 32 requests, prompts 32..256, outputs 16..128, 16 at once",
            Workload.W4: "W4 long decode: prompt 4096, 64 new tokens, one stream",
            Workload.W5: "W5 large batch: 64 requests at once, prompts 64, outputs 64",
        }[self]

    @property
    def figure(self) -> Figure:
        match self:
            case Workload.W1 | Workload.W4:
                return Figure.DECODE
            case Workload.W2:
                return Figure.PREFILL
            case _:
                return Figure.BATCH

    @property
    def at_once(self) -> int:
        """Most requests in flight."""
        return 64 if self is Workload.W5 else 16

    def lengths(self) -> list[tuple[int, int]]:
        """(prompt, output) tokens of each request; W3's are drawn with seed 0."""
        match self:
            case Workload.W1:
                return [(128, 128)]
            case Workload.W2:
                return [(1024, 1)]
            case Workload.W4:
                return [(4096, 64)]
            case Workload.W5:
                return [(64, 64)] * 64
            case _:
                random = np.random.RandomState(0)
                sizes = (random.randint(low, high, _MIXED_REQUESTS) for low, high in ((32, 257), (16, 129)))
                return [(int(p), int(o)) for p, o in zip(*sizes, strict=True)]


USUAL_WORKLOADS = (Workload.W1, Workload.W2, Workload.W3)


@dataclass(frozen=True)
class Measurement:
    """One run of a workload. Times in seconds; `intervals` are those between one token of a request and its next."""

    workload: Workload
    wall: float
    ttfts: tuple[float, ...]
    intervals: tuple[float, ...]
    prompt_tokens: int
    output_tokens: int

    @property
    def tokens_per_second(self) -> float:
        """Of what the workload's figure counts."""
        match self.workload.figure:
            case Figure.DECODE:
                return len(self.intervals) / sum(self.intervals)
            case Figure.PREFILL:
                return self.prompt_tokens / self.ttfts[0]
            case Figure.BATCH:
                return self.output_tokens / self.wall


def require_room(llm: LLM, workload: Workload) -> None:
    """Raise RequestError when the engine is too small for a workload."""
    needed, limit = max(p + o for p, o in workload.lengths()), llm.manifest.limits.max_seq_len
    if needed > limit:
        raise RequestError(
            f"workload {workload} needs max_seq_len {needed}, this engine has {limit}: "
            f"rebuild it with --max-seq-len {needed}, or leave {workload} out"
        )


def measure(llm: LLM, workload: Workload, runs: int, progress: Progress) -> list[Measurement]:
    """One run to warm up, then `runs` with fresh random token ids each; greedy, end of sequence ignored."""
    require_room(llm, workload)
    with progress.task(workload.summary, runs + 1) as task:
        measured = []
        for seed in range(runs + 1):
            measured.append(_run(llm, workload, seed))
            task.advance()
    return measured[1:]


def median_run(measured: Sequence[Measurement]) -> Measurement:
    """The run whose rate is the median (the lower one of an even number)."""
    return sorted(measured, key=lambda m: m.tokens_per_second)[(len(measured) - 1) // 2]


def _run(llm: LLM, workload: Workload, seed: int) -> Measurement:
    random = np.random.RandomState(1000 + seed)
    lengths = workload.lengths()
    prompts = [random.randint(0, llm.manifest.model.vocab_size, prompt).tolist() for prompt, _ in lengths]
    salt = f"{workload} {seed}"  # prompts of two workloads begin alike, and a run before must not have computed them
    params = [
        SamplingParams(temperature=0.0, max_tokens=output, ignore_eos=True, cache_salt=salt) for _, output in lengths
    ]
    start = time.perf_counter()
    results = _serve(llm, prompts, params, workload.at_once)
    wall = time.perf_counter() - start
    return Measurement(
        workload=workload,
        wall=wall,
        ttfts=_collect(results, lambda result: [result.metrics.ttft or 0.0]),
        intervals=_collect(results, lambda result: result.metrics.inter_token_latencies),
        prompt_tokens=sum(prompt for prompt, _ in lengths),
        output_tokens=sum(len(result.outputs[0].token_ids) for result in results),
    )


def _serve(llm: LLM, prompts: list[list[int]], params: list[SamplingParams], at_once: int) -> list[RequestOutput]:
    """All requests, at most `at_once` in flight. An engine made for no more than those does that by itself."""
    if min(llm.manifest.limits.max_batch_size, len(prompts)) <= at_once:
        return llm.generate(prompts, params)
    with ThreadPoolExecutor(at_once) as threads:
        return list(threads.map(lambda prompt, param: llm.generate([prompt], param)[0], prompts, params))


def _collect(results: Sequence[RequestOutput], pick: Callable[[RequestOutput], list[float]]) -> tuple[float, ...]:
    return tuple(value for result in results for value in pick(result))
