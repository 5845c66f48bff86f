"""Engines for other machines are built here, and refused here where this CPU lacks what they need."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from enginesmith.plugins.cpu.isa import Isa, machine_flags

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize("isa", [Isa.AVX2, Isa.AVX512, Isa.AMX])
def test_an_engine_for_another_machine(cli: Cli, checkpoint: Path, tmp_path: Path, isa: Isa) -> None:
    output = tmp_path / "out"
    flags = ("--dtype", "fp32", "--max-seq-len", 400, "--max-batch-size", 4, "--isa", isa.value)
    lacking = sorted(isa.cpu_flags - machine_flags())
    if lacking:
        refused = cli("build", checkpoint, "-o", output, *flags)
        assert refused.returncode == 2
        assert f"--isa {isa.value}" in refused.stderr
        assert "--no-check" in refused.stderr
        assert not output.exists()
    done = cli("build", checkpoint, "-o", output, "--no-check", *flags)
    assert done.returncode == 0, done.stderr
    assert cli("inspect", output).returncode == 0
    run = cli("run", output, "-p", "hello", "--max-tokens", 2)
    assert run.returncode == (2 if lacking else 0), run.stderr
    assert all(flag in run.stderr for flag in lacking)
    assert "Traceback" not in run.stderr
