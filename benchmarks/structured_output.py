"""Measures libraries that constrain outputs, on this CPU: what importing, compiling and every token cost.

    python benchmarks/structured_output.py --library llguidance xgrammar --tokenizer tokenizer.json
        --suite JSON-Schema-Test-Suite/tests/draft2020-12      # github.com/json-schema-org/JSON-Schema-Test-Suite
        --schemas jsonschemabench/data --sample 500            # github.com/guidance-ai/jsonschemabench

`--tokenizer` is a tokenizer.json, or a vocabulary of tiktoken's. The suite: an instance is accepted when its JSON is
allowed byte by byte, and the end of the sequence after it; schemas that a library refuses are
counted apart. The schemas: compiled, then 64 tokens drawn evenly among those allowed, and the next mask after each.
Each schema gets a process of its own, forked when the library is loaded, and 20 seconds.
"""

import argparse
import base64
import importlib.metadata
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

MAX_SECONDS = 20
WALK = 64
_PROBE = """
import sys, time, resource
start = time.perf_counter()
import {name}
seconds = time.perf_counter() - start
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
print("import", round(seconds, 2), "s,", memory, "MiB,", "with" if "torch" in sys.modules else "without", "torch")
"""


class Matcher(Protocol):
    """One output under a grammar."""

    def mask(self) -> np.ndarray: ...
    def take(self, token: int) -> bool: ...


class LlGuidance:
    """llguidance, with the options that the engine uses."""

    def __init__(self, tokens: list[bytes], eos: int) -> None:
        from llguidance import LLTokenizer, TokenizerWrapper

        class Tokens:
            eos_token_id, bos_token_id, special_token_ids = eos, None, [eos]

            def __init__(self) -> None:
                self.tokens = tokens

            def __call__(self, text: str) -> list[int]:
                return vocabulary.greedy_tokenize(text)

        vocabulary = self.vocabulary = LLTokenizer(TokenizerWrapper(Tokens()), eos_token=[eos])
        self.size = len(tokens)

    def compile(self, schema: Any) -> Matcher:
        from llguidance import LLMatcher, LLParserLimits

        from enginesmith.runtime.structured_output.grammar_process import LIMITS
        from enginesmith.runtime.structured_output.json_options import JSON_OPTIONS

        options = cast(Any, JSON_OPTIONS)
        grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=options)
        limits = LLParserLimits(**LIMITS, verbose_errors=False)
        matcher = LLMatcher(self.vocabulary, grammar, log_level=0, limits=limits)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        out = np.zeros(-(-self.size // 32), np.uint32)

        class Output:
            def mask(self) -> np.ndarray:
                matcher.unsafe_compute_mask_ptr(out.ctypes.data, out.nbytes)
                if matcher.is_error():
                    raise ValueError(matcher.get_error())
                return out

            def take(self, token: int) -> bool:
                return matcher.try_consume_tokens([token]) == 1

        return Output()


class XGrammar:
    """xgrammar, one thread as the engine has no more to spare."""

    def __init__(self, tokens: list[bytes], eos: int) -> None:
        import xgrammar  # pyright: ignore[reportMissingImports]

        info = xgrammar.TokenizerInfo(tokens, stop_token_ids=[eos])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.size = len(tokens)

    def compile(self, schema: Any) -> Matcher:
        import xgrammar  # pyright: ignore[reportMissingImports]

        compiled = self.compiler.compile_json_schema(json.dumps(schema), strict_mode=False)
        matcher = xgrammar.GrammarMatcher(compiled)
        out = np.full((1, -(-self.size // 32)), -1, np.int32)

        class Output:
            def mask(self) -> np.ndarray:
                if not matcher.fill_next_token_bitmask(out):
                    out.fill(-1)
                return out[0].view(np.uint32)

            def take(self, token: int) -> bool:
                return matcher.accept_token(token)

        return Output()


LIBRARIES: dict[str, Callable[[list[bytes], int], Any]] = {"llguidance": LlGuidance, "xgrammar": XGrammar}


def read_tokens(path: Path) -> list[bytes]:
    """The bytes of every token; an end-of-sequence token is added."""
    if path.suffix == ".json":
        from enginesmith.runtime.tokenizer import load_tokenizer

        tokenizer = load_tokenizer(path.parent)
        special = tokenizer.special_ids
        size = len(json.loads(path.read_text())["model"]["vocab"])
        return [b"" if at in special else data for at, data in enumerate(tokenizer.token_bytes(size))] + [b"<eos>"]
    return [base64.b64decode(line.split()[0]) for line in path.read_text().splitlines()] + [b"<eos>"]


def accepts(matcher: Matcher, text: str, byte_tokens: dict[int, int], eos: int) -> bool:
    """Whether a text, byte by byte, and then the end are allowed."""
    if not all(matcher.take(byte_tokens[byte]) for byte in text.encode()):
        return False
    return bool(matcher.mask()[eos // 32] >> np.uint32(eos % 32) & 1)


def apart(work: Callable[[], Any]) -> Any:
    """The result of work in a forked process, or how it ended."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        signal.alarm(MAX_SECONDS)
        try:
            result = work()
        except Exception as error:
            result = {"refused": str(error)[:200]}
        os.write(send, json.dumps(result).encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        data = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return (
        json.loads(data) if status == 0 and data else {"died": signal.Signals(-status).name if status < 0 else status}
    )


def suite_cases(folder: Path) -> Iterator[tuple[Any, list[tuple[str, bool]]]]:
    for path in sorted(folder.glob("*.json")):
        for group in json.loads(path.read_text()):
            tests = [(json.dumps(test["data"], ensure_ascii=False), test["valid"]) for test in group["tests"]]
            yield group["schema"], [test for test in tests if "\\ud" not in test[0]]


def run_suite(library: Any, folder: Path, byte_tokens: dict[int, int], eos: int) -> None:
    counts: Counter[str] = Counter()
    for schema, tests in suite_cases(folder):

        def work(schema: Any = schema, tests: list[tuple[str, bool]] = tests) -> list[bool]:
            return [accepts(library.compile(schema), text, byte_tokens, eos) for text, _ in tests]

        result = apart(work)
        if isinstance(result, dict):
            counts["died" if "died" in result else "refused"] += 1
            continue
        counts["compiled"] += 1
        for accepted, (text, valid) in zip(result, tests, strict=True):
            counts[("valid" if valid else "invalid") + (" accepted" if accepted else " rejected")] += 1
            if accepted and not valid and "--wrong" in sys.argv:
                print("accepts", text[:100], "under", json.dumps(schema)[:300])
    print("suite:", ", ".join(f"{name} {counts[name]}" for name in sorted(counts)))


def run_schemas(library: Any, paths: list[Path], eos: int) -> None:
    compiled, first, masks, outcomes = [], [], [], Counter()
    for number, path in enumerate(paths):

        def work(path: Path = path, number: int = number) -> dict[str, Any]:
            schema, draw, times = json.loads(path.read_text()), random.Random(number), []
            library.compile({"type": "null"}).mask()  # pages that a fork shares are copied when they are first written
            start = time.perf_counter()
            matcher = library.compile(schema)
            took = time.perf_counter() - start
            for _ in range(WALK):
                start = time.perf_counter()
                mask = matcher.mask()
                times.append(time.perf_counter() - start)
                allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
                token = int(draw.choice(allowed))
                if token == eos:
                    break
                matcher.take(token)
            return {"compile": took, "masks": times}

        result = apart(work)
        outcomes[next((name for name in ("died", "refused") if name in result), "compiled")] += 1
        if "masks" in result:
            compiled.append(result["compile"])
            first.append(result["masks"][0])
            masks += result["masks"][1:]
    print("schemas:", ", ".join(f"{name} {outcomes[name]}" for name in sorted(outcomes)))
    for name, times in (("compile", compiled), ("first mask", first), ("next masks", masks)):
        print(f"{name:>10}: {spread(times)}")


def spread(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    at = {
        name: ordered[min(len(ordered) - 1, int(len(ordered) * share))] for name, share in (("p50", 0.5), ("p99", 0.99))
    }
    rest = {"mean": statistics.fmean(ordered), "max": ordered[-1]}
    return ", ".join(f"{name} {value * 1e3:.3f} ms" for name, value in (at | rest).items())


def installed(name: str) -> str:
    files = importlib.metadata.files(name) or []
    size = sum(Path(str(file.locate())).stat().st_size for file in files if Path(str(file.locate())).exists())
    needs = [need.split(";")[0] for need in importlib.metadata.requires(name) or [] if "extra ==" not in need]
    return f"{importlib.metadata.version(name)}, {size / 1e6:.1f} MB, needs {', '.join(needs) or 'nothing'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--library", nargs="+", choices=LIBRARIES, default=["llguidance"])
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--suite", type=Path)
    parser.add_argument("--schemas", type=Path)
    parser.add_argument("--sample", type=int, default=500)
    parser.add_argument("--wrong", action="store_true", help="print what is accepted and should not be")
    args = parser.parse_args()
    tokens = read_tokens(args.tokenizer)
    eos = len(tokens) - 1
    byte_tokens = {token[0]: at for at, token in enumerate(tokens) if len(token) == 1}
    paths = sorted(args.schemas.rglob("*.json")) if args.schemas else []
    paths = random.Random(0).sample(paths, min(args.sample, len(paths)))
    for name in args.library:
        print(f"## {name} {installed(name)}, vocabulary of {len(tokens)}", flush=True)
        print(
            subprocess.run(
                [sys.executable, "-c", _PROBE.format(name=name)], capture_output=True, text=True
            ).stdout.strip()
        )
        start = time.perf_counter()
        library = LIBRARIES[name](tokens, eos)
        print(f"vocabulary made in {time.perf_counter() - start:.2f} s", flush=True)
        if args.suite:
            run_suite(library, args.suite, byte_tokens, eos)
        if paths:
            run_schemas(library, paths, eos)


if __name__ == "__main__":
    main()
