"""Measures what holding outputs to a grammar costs while they are generated.

    python benchmarks/structured_decode.py ENGINE --at-once 16 --tokens 128 --rounds 5

The same prompts in turns: free, under a schema whose arrays are never done within so many tokens, and under a regular
expression that any text matches. Prints medians of tokens/s over the rounds, how much that is below the free turn of
the same round, and CPU times, which tell more where other work makes the rates uneven: of the whole process a step, and
of what a step has to wait for (constraints that take a token, sampling). Masks are computed beside the network.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import NamedTuple

from enginesmith import LLM, SamplingParams, StructuredOutputsParams
from enginesmith.runtime.executors.cpu import CpuExecutor
from enginesmith.runtime.structured_output.constraint import GrammarConstraint

SCHEMA = {
    "type": "array",
    "minItems": 10_000,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["name", "age", "tags"],
        "additionalProperties": False,
    },
}
KINDS = {
    "free": None,
    "schema": StructuredOutputsParams(json=SCHEMA),
    "any text": StructuredOutputsParams(regex=r"(?s:.{100000,})"),
}


class Timed:
    """Adds up the CPU time of the thread that calls a method."""

    seconds = 0.0

    def __init__(self, kind: type, name: str) -> None:
        method = getattr(kind, name)

        def timed(*arguments: object) -> object:
            start = time.thread_time()
            try:
                return method(*arguments)
            finally:
                Timed.seconds += time.thread_time() - start

        setattr(kind, name, timed)


class Turn(NamedTuple):
    """What one turn took: tokens/s; CPU seconds a step, of all threads, and of what the step waits for."""

    rate: float
    cpu: float
    waits: float


def measure(llm: LLM, asked: StructuredOutputsParams | None, at_once: int, tokens: int, seed: int) -> Turn:
    prompts = [f"List number {at} of the people in the village:" for at in range(at_once)]
    params = SamplingParams(max_tokens=tokens, ignore_eos=asked is None, structured_outputs=asked, seed=seed)
    start, cpu, Timed.seconds = time.perf_counter(), time.process_time(), 0.0
    outputs = llm.generate(prompts, params)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    assert all(len(output.outputs[0].token_ids) == tokens for output in outputs)
    return Turn(at_once * tokens / seconds, cpu / tokens, Timed.seconds / tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("engine", type=Path)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    turns: dict[str, list[Turn]] = {name: [] for name in KINDS}
    for kind, name in ((GrammarConstraint, "accept"), (CpuExecutor, "sample")):
        Timed(kind, name)
    with LLM(args.engine, threads=args.threads, prefix_cache=False) as llm:
        for number in range(args.rounds + 1):  # the first warms up
            for name, asked in KINDS.items():
                turn = measure(llm, asked, args.at_once, args.tokens, number)
                if number:
                    turns[name].append(turn)
    for name, measured in turns.items():
        rate, cpu, waits = (statistics.median(values) for values in zip(*measured, strict=True))
        less = statistics.median(1 - turn.rate / free.rate for turn, free in zip(measured, turns["free"], strict=True))
        print(
            f"{name:>9}: {rate:7.1f} tokens/s, {less:.1%} below free; CPU a step {cpu * 1e3:.2f} ms, "
            f"of them in constraints and sampling {waits * 1e3:.2f} ms"
        )


if __name__ == "__main__":
    main()
