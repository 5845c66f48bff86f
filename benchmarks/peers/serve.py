"""Runs one engine as a process that `compare.py` talks to: a JSON line in, a JSON line out.

    PYTHON serve.py DRIVER MODEL THREADS        DRIVER names drive_DRIVER.py beside this file

A driver is a module with `VERSION` and a class `Engine(model, threads)`, whose method `run(requests, at_once)` serves
requests (token ids, output tokens), greedily and past the end of sequence, at most `at_once` in flight, and returns for
each the instants (time.perf_counter) of its tokens. Runs in the driver's own environment, which needs NumPy alone.
"""

import importlib
import json
import os
import random
import sys
import time


def main() -> None:
    driver_name, model, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    answers = os.fdopen(os.dup(1), "w")  # engines may print: their words go to stderr
    os.dup2(2, 1)
    driver = importlib.import_module(f"drive_{driver_name}")
    engine = driver.Engine(model, threads)
    print(json.dumps({"version": driver.VERSION, "tokens": engine.vocab_size}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(engine, json.loads(line))), file=answers, flush=True)


def _answer(engine, job: dict) -> dict:
    chance = random.Random(job["seed"])
    requests = [
        ([chance.randrange(100, min(40000, engine.vocab_size)) for _ in range(prompt)], output)
        for prompt, output in job["lengths"]
    ]
    cpu, start = _own_cpu(), time.perf_counter()
    try:
        times = engine.run(requests, job["at_once"])
    except NotImplementedError as error:
        return {"unsupported": str(error)}
    wall = time.perf_counter() - start
    for (_, wanted), got in zip(requests, times, strict=True):
        if len(got) != wanted:
            raise RuntimeError(f"asked for {wanted} tokens, got {len(got)}")
    return {
        "wall_s": wall,
        "token_times_s": [[at - start for at in one] for one in times],
        "cpu_s": _own_cpu() - cpu,
        "peak_rss_mib": _peak_rss_mib(),
    }


def _own_cpu() -> float:
    spent = os.times()
    return spent.user + spent.system


def _peak_rss_mib() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) // 1024 for line in file if line.startswith("VmHWM"))


if __name__ == "__main__":
    main()
