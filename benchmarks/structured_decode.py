"""Measures what holding outputs to a grammar costs while they are generated.

    python benchmarks/structured_decode.py ENGINE --at-once 16 --tokens 128 --rounds 5

The same prompts in turns: free, under a schema whose arrays are never done within so many tokens, and under a regular
expression that any text matches. Prints medians of tokens/s over the rounds, and the share of the time that was spent
in the constraints and in sampling, which tells more where other work makes the rates uneven.
"""

import argparse
import statistics
import time
from pathlib import Path

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
    """Adds up the time in a method."""

    seconds = 0.0

    def __init__(self, kind: type, name: str) -> None:
        method = getattr(kind, name)

        def timed(*arguments: object) -> object:
            start = time.perf_counter()
            try:
                return method(*arguments)
            finally:
                Timed.seconds += time.perf_counter() - start

        setattr(kind, name, timed)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("engine", type=Path)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    rates: dict[str, list[float]] = {name: [] for name in KINDS}
    shares: dict[str, list[float]] = {name: [] for name in KINDS}
    for kind, name in ((GrammarConstraint, "mask"), (GrammarConstraint, "accept"), (CpuExecutor, "sample")):
        Timed(kind, name)
    with LLM(args.engine, threads=args.threads, prefix_cache=False) as llm:
        prompts = [f"List number {at} of the people in the village:" for at in range(args.at_once)]
        for turn in range(args.rounds + 1):  # the first warms up
            for name, asked in KINDS.items():
                params = SamplingParams(
                    max_tokens=args.tokens, ignore_eos=asked is None, structured_outputs=asked, seed=turn
                )
                start, Timed.seconds = time.perf_counter(), 0.0
                outputs = llm.generate(prompts, params)
                seconds = time.perf_counter() - start
                assert all(len(output.outputs[0].token_ids) == args.tokens for output in outputs)
                if turn:
                    rates[name].append(args.at_once * args.tokens / seconds)
                    shares[name].append(Timed.seconds / seconds)
    for name, measured in rates.items():
        rate = statistics.median(measured)
        spread = f"{min(measured):.1f} to {max(measured):.1f}"
        share = statistics.median(shares[name])
        print(f"{name:>9}: {rate:7.1f} tokens/s ({spread}), {share:.2%} in constraints and sampling")


if __name__ == "__main__":
    main()
