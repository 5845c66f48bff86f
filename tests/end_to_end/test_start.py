"""A real engine starts at once, and without the libraries that built it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

RUN = """
import sys
from enginesmith.cli.main import main
status = main(["run", sys.argv[1], "-p", "The capital of France is", "--max-tokens", "1", "--temperature", "0"])
print(*sys.modules, file=sys.stderr)
sys.exit(status)
"""


def test_a_run_imports_neither_torch_nor_transformers(engine_folder: Callable[[str], Path]):
    command = [sys.executable, "-c", RUN, str(engine_folder("int4"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Paris"
    loaded = {name.partition(".")[0] for name in done.stderr.splitlines()[-1].split()}
    assert "enginesmith" in loaded
    assert not {"torch", "transformers", "onnx", "safetensors"} & loaded


def test_a_run_of_one_token_takes_less_than_a_second(engine_folder: Callable[[str], Path]):
    """Processor time, for the clock on the wall also tells of what else this machine does; start_time.py reads it."""
    command = [sys.executable, "-c", RUN, str(engine_folder("int4"))]
    seconds = []
    for _ in range(4):  # the first one checks digests, once for an engine
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        seconds.append(usage.ru_utime + usage.ru_stime)
    assert min(seconds) < 1
