"""SIGKILL at random moments leaves the old result or the new one; a few here, by hand as many as wanted."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_killed_command_leaves_old_or_new_and_the_next_run_clears_up() -> None:
    script = Path(__file__).with_name("kills.py")
    command = [sys.executable, str(script), "--kills", "12"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
