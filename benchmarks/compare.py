"""Measures engines beside each other: the same workloads, in turns, so that all meet the same moods of the machine.

    python benchmarks/compare.py --rounds 3 --threads 2 --output results.jsonl
        --contender "enginesmith int4" PYTHON enginesmith ENGINE
        --contender "llama.cpp Q4_0"   PYTHON llamacpp    MODEL.gguf
        --contender "OpenVINO int4"    PYTHON openvino    FOLDER

Every contender is a process in its own environment (PYTHON is its interpreter), started before the first round and idle
between its turns. Prints a table in Markdown: medians over the rounds.
"""

import argparse
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from enginesmith.measure.workloads import USUAL_WORKLOADS, Workload

SERVE = Path(__file__).parent / "peers" / "serve.py"
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Contender:
    """A running driver and what it has answered."""

    name: str
    process: "subprocess.Popen[str]"
    started: float
    version: str = ""
    first_token_s: float = 0.0
    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @classmethod
    def start(cls, name: str, python: str, driver: str, model: str, threads: int) -> "Contender":
        """Start it, and wait for its first token, after a prompt of 128 tokens."""
        started = time.perf_counter()
        command = [python, str(SERVE), driver, model, str(threads)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        contender = cls(name, process, started)
        contender.version = contender._read()["version"]
        contender.ask([(128, 1)], at_once=1, seed=0)
        contender.first_token_s = time.perf_counter() - started
        return contender

    def ask(self, lengths: list[tuple[int, int]], at_once: int, seed: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        busy, start = _busy(), time.perf_counter()
        self.process.stdin.write(json.dumps({"lengths": lengths, "at_once": at_once, "seed": seed}) + "\n")
        self.process.stdin.flush()
        answer = self._read()
        if "cpu_s" in answer:  # how many cores others kept busy meanwhile
            answer["other_cores"] = max(0.0, (_busy() - busy - answer["cpu_s"]) / (time.perf_counter() - start))
        return answer

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with status {self.process.wait()}; its words are above")
        return json.loads(line)

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def main() -> None:
    options = _options()
    contenders = [Contender.start(*contender, threads=options.threads) for contender in options.contender]
    workloads = [Workload(name) for name in options.workload]
    with options.output.open("a") as output:
        for round in range(options.rounds + 1):  # the first one warms up and is not counted
            for workload in workloads:
                for contender in contenders:
                    seed = 1000 * (round + 1) + workloads.index(workload)
                    answer = contender.ask(workload.lengths(), workload.at_once, seed)
                    if round == 0:
                        continue
                    contender.answers.setdefault(workload, []).append(answer)
                    line = {
                        "engine": contender.name,
                        "version": contender.version,
                        "workload": workload,
                        "round": round,
                    }
                    print(json.dumps(line | answer), file=output, flush=True)
    for contender in contenders:
        contender.stop()
    print(_table(contenders))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ("NAME", "PYTHON", "DRIVER", "MODEL")
    parser.add_argument("--contender", nargs=4, metavar=names, action="append", required=True)
    parser.add_argument(
        "--workload", nargs="+", choices=[w.value for w in Workload], default=[w.value for w in USUAL_WORKLOADS]
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("results.jsonl"))
    return parser.parse_args()


def _busy() -> float:
    """Seconds of CPU that the whole machine has spent, stolen time included."""
    values = [int(value) for value in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    user, nice, system, _, _, interrupts, soft, stolen = values
    return (user + nice + system + interrupts + soft + stolen) / TICKS


def _table(contenders: list[Contender]) -> str:
    measured = {workload for contender in contenders for workload in contender.answers}
    columns = [(head, workload, figure) for head, workload, figure in COLUMNS if workload in measured]
    heads = ["engine", *(head for head, _, _ in columns), "first token s", "peak MiB"]
    rows = [heads, ["---"] + ["---:"] * (len(heads) - 1)]
    for contender in contenders:
        answers = [answer for several in contender.answers.values() for answer in several if "wall_s" in answer]
        noisy = any(answer["other_cores"] > 0.2 for answer in answers)
        rows.append(
            [
                f"{contender.name} ({contender.version}){' †' if noisy else ''}",
                *(_median(contender, workload, figure) for _, workload, figure in columns),
                f"{contender.first_token_s:.2f}",
                str(max((answer["peak_rss_mib"] for answer in answers), default="-")),
            ]
        )
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, "", "† others used more than 0.2 cores during one of its runs."])


def _first_token_ms(answer: dict[str, Any]) -> float:
    return answer["token_times_s"][0][0] * 1e3


def _batch_rate(answer: dict[str, Any]) -> float:
    return sum(map(len, answer["token_times_s"])) / answer["wall_s"]


def _decode_rate(answer: dict[str, Any]) -> float:
    times = answer["token_times_s"][0]
    return (len(times) - 1) / (times[-1] - times[0])


def _median(contender: Contender, workload: Workload, figure: Callable[[dict[str, Any]], float]) -> str:
    values = [figure(answer) for answer in contender.answers.get(workload, []) if "wall_s" in answer]
    return f"{statistics.median(values):.1f}" if values else "-"


COLUMNS: list[tuple[str, Workload, Callable[[dict[str, Any]], float]]] = [
    ("W1 TTFT ms", Workload.W1, _first_token_ms),
    ("W1 decode tok/s", Workload.W1, _decode_rate),
    ("W2 prefill tok/s", Workload.W2, lambda answer: 1024e3 / _first_token_ms(answer)),
    ("W3 output tok/s", Workload.W3, _batch_rate),
    ("W4 prefill tok/s", Workload.W4, lambda answer: 4096e3 / _first_token_ms(answer)),
    ("W4 decode tok/s", Workload.W4, _decode_rate),
    ("W5 output tok/s", Workload.W5, _batch_rate),
]


if __name__ == "__main__":
    main()
