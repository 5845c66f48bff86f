"""A request to stop outlives whoever swallows its exception."""

import subprocess
import sys

import pytest

SCRIPT = """
import os, signal
from enginesmith.cli import stop_signals
from enginesmith.cli.progress import LineProgress

stop_signals.install()
try:
    os.kill(os.getpid(), signal.{name})
except BaseException:  # as the import of a C extension may do
    pass
with LineProgress().task("next step"):
    print("went on")
"""


@pytest.mark.parametrize(("name", "status"), [("SIGINT", -2), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_swallowed_request_stops_the_next_step(name: str, status: int) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT.format(name=name)], capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
