"""What HTTP costs: `python benchmarks/serve_overhead.py ENGINE [--rounds 3] [--threads N]`.

Time to first token and the throughput of W3, in process and over HTTP in turns, so that both meet the same moods of the
machine. Prompts are token ids, and the client reads the events no further than it must: what is measured is the server.
"""

import argparse
import json
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from enginesmith.measure.workloads import Workload
from enginesmith.runtime.llm import LLM
from enginesmith.runtime.sampling_params import SamplingParams

FIRST_TOKENS, AT_ONCE = 20, 16
HEAD = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n"
Request = tuple[list[int], int, str]
"""A prompt, how many tokens to write, and a salt of its own."""


class InProcess:
    """An LLM of this process."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm

    def serve(self, request: Request) -> float:
        """Seconds to the first token, when all are there."""
        prompt, tokens, salt = request
        params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, cache_salt=salt)
        start, first = time.perf_counter(), 0.0
        for _ in self._llm.stream(prompt, params):
            first = first or time.perf_counter() - start
        return first


class OverHttp:
    """A server that listens on a port."""

    def __init__(self, port: int) -> None:
        self._port = port

    def serve(self, request: Request) -> float:
        """Seconds to the first event, when all are there."""
        prompt, tokens, salt = request
        body: dict[str, Any] = {"prompt": prompt, "max_tokens": tokens, "cache_salt": salt}
        data = json.dumps(body | {"temperature": 0, "ignore_eos": True, "stream": True}).encode()
        start, first, received = time.perf_counter(), 0.0, b""
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            connection.sendall(f"{HEAD}content-length: {len(data)}\r\n\r\n".encode() + data)
            while piece := connection.recv(1 << 16):
                received += piece
                if not first and b"data: " in received:
                    first = time.perf_counter() - start
        assert b"[DONE]" in received, received[:500]
        return first


@contextmanager
def server(engine: Path, threads: int | None) -> Iterator[OverHttp]:
    """A server in a process of its own."""
    code = "import sys; from enginesmith.cli.start import main; main(sys.argv[1:])"
    options = [] if threads is None else ["--threads", str(threads)]
    command = [sys.executable, "-c", code, "serve", str(engine), "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = next(found for line in process.stderr if (found := re.search(r"http://\S+:(\d+)", line)))
        yield OverHttp(int(found[1]))
        process.terminate()


def requests(lengths: list[tuple[int, int]], vocabulary: int, seed: int) -> list[Request]:
    """Random prompts, never seen before."""
    numbers = np.random.RandomState(seed)
    return [(numbers.randint(0, vocabulary, prompt).tolist(), output, f"{seed}") for prompt, output in lengths]


def main(engine: Path, rounds: int, threads: int | None) -> None:
    first: dict[str, list[float]] = {"in process": [], "over HTTP": []}
    rates: dict[str, list[float]] = {name: [] for name in first}
    for number in range(rounds):
        with LLM(engine, threads=threads) as llm:
            vocabulary = llm.manifest.model.vocab_size
            measure(InProcess(llm), vocabulary, number, first["in process"], rates["in process"])
        with server(engine, threads) as served:
            measure(served, vocabulary, number, first["over HTTP"], rates["over HTTP"])
    for name in first:
        print(
            f"{name:<10}  first token: median {statistics.median(first[name]) * 1e3:.1f} ms, "
            f"best {min(first[name]) * 1e3:.1f} ms   W3: {', '.join(f'{rate:.1f}' for rate in rates[name])} tokens/s"
        )


def measure(target: InProcess | OverHttp, vocabulary: int, number: int, first: list[float], rates: list[float]) -> None:
    """Add to what was measured, after a few requests to warm up."""
    for request in requests([(32, 8)] * 3, vocabulary, 1000 + number):
        target.serve(request)
    first += [target.serve(request) for request in requests([(32, 1)] * FIRST_TOKENS, vocabulary, 2000 + number)]
    lengths = Workload.W3.lengths()
    start = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as clients:
        list(clients.map(target.serve, requests(lengths, vocabulary, 3000 + number)))
    rates.append(sum(output for _, output in lengths) / (time.perf_counter() - start))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("engine", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    main(arguments.engine, arguments.rounds, arguments.threads)
