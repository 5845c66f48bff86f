"""`enginesmith tune` on the tiny engine."""

import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from enginesmith.cli import tune
from enginesmith.cli.main import main

LOAD = ("--requests", 6, "--prompt-tokens", 12, "--output-tokens", 6, "--threads", 1)


def test_every_setting_is_measured_and_the_best_is_told(cli: Callable[..., Any], engine: Path, tmp_path: Path) -> None:
    picture = tmp_path / "tune.png"
    done = cli("tune", engine, "--latency-p99", 10000, *LOAD, "--repetitions", 1, "--plot", picture, "--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    limits = json.loads((engine / "engine.json").read_text())["limits"]
    tried = {(setting["max_num_seqs"], setting["max_num_tokens"]) for setting in data["settings"]}
    assert (limits["max_batch_size"], limits["max_num_tokens"]) in tried
    assert {batch for batch, _ in tried} == {1, 2, 4}
    for setting in data["settings"]:
        assert len(setting["runs"]) == 1
        assert setting["tokens_per_s"] > 0
        assert 0 < setting["ttft_s"]["median"] <= setting["ttft_s"]["p99"]
    fastest = max(data["settings"], key=lambda setting: setting["tokens_per_s"])
    assert data["best"] == {name: fastest[name] for name in ("max_num_seqs", "max_num_tokens")}
    words = (
        f"--max-num-seqs {data['best']['max_num_seqs']} --max-num-tokens {data['best']['max_num_tokens']} --threads 1"
    )
    assert f"enginesmith serve {engine} {words}" in done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")


class _Interrupted:
    """Progress that sends Ctrl-C soon after the fourth run, which is in the midst of another."""

    def __init__(self) -> None:
        self._runs = 0

    @contextmanager
    def task(self, description: str, total: float | None = None) -> Iterator["_Interrupted"]:
        yield self

    def advance(self, amount: float = 1) -> None:
        self._runs += 1
        if self._runs == 4:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()


def test_ctrl_c_shows_what_there_is(
    engine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tune, "terminal_progress", _Interrupted)
    arguments = ["tune", engine, "--latency-p99", 10000, *LOAD, "--repetitions", 100000, "--time-limit", 60]
    handler = signal.getsignal(signal.SIGINT)
    try:
        assert main([str(argument) for argument in arguments]) == 130
    finally:
        signal.signal(signal.SIGINT, handler)  # the command ignores the second one
    said = capsys.readouterr()
    assert re.search(r"requests/s, medians of the runs, \d+ s in all", said.out)
    assert "best" in said.out
    assert "Go on with: enginesmith serve" in said.err
    assert said.err.endswith("interrupted\n")


def test_bounds_that_nothing_keeps(cli: Callable[..., Any], engine: Path) -> None:
    done = cli("tune", engine, "--latency-p99", 0.0001, *LOAD, "--repetitions", 1, "--time-limit", 4)
    assert done.returncode == 2
    assert "no setting keeps the bounds (--latency-p99 0.0001)" in done.stderr
    assert "max-num-seqs" in done.stdout


def test_requests_that_do_not_fit(cli: Callable[..., Any], engine: Path) -> None:
    done = cli("tune", engine, "--latency-p99", 10, "--prompt-tokens", 300)
    assert done.returncode == 2
    assert "requests have up to 546 tokens" in done.stderr
    assert "max_seq_len is 400" in done.stderr
