"""benchmarks/gpu.py on the emulated GPU, which computes nothing here: what it builds, asks and prints."""

import runpy
from pathlib import Path

import pytest
from emulated_gpu import EmulatedGpu, stand_in_compiler

SCRIPT = Path(__file__).parents[4] / "benchmarks" / "gpu.py"


def test_one_table(gpu: EmulatedGpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    gpu.reset(fill=0)  # so that every token is 0
    gpu.milliseconds = lambda job: 0.01 / job["num_stages"]
    main = runpy.run_path(str(SCRIPT))["main"]
    options = ["--shapes", "tiny", "--schemes", "bf16", "--lengths", "4/3,60/40", "--requests", "2"]
    with stand_in_compiler():
        assert main([*options, "--folder", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert printed.err == "tiny, Transformers: PyTorch sees no GPU\n"
    heading, _, names, _, ours, peer = printed.out.splitlines()
    assert heading.startswith("Emulated GPU, driver for CUDA 13.4; ceilings unknown for this GPU: unknown, unknown")
    assert "2 x 4/3 | 2 x 60/40" in names
    assert ours.startswith("| tiny | bf16 |")
    assert peer.startswith("| tiny | Transformers |  |")
    decode, read, prefill, compute, first, second = ours.split("|")[3:9]
    assert min(float(cell.replace(",", "")) for cell in (decode, prefill, first)) > 0
    assert read.strip() == compute.strip() == second.strip() == ""  # no ceiling is known, 100 tokens are too many
    assert (tmp_path / "timings.json").exists()
    assert gpu.held == 0


def test_without_a_gpu_nothing_is_measured(gpu: EmulatedGpu, capsys: pytest.CaptureFixture[str]):
    gpu.reset(devices=0)
    assert runpy.run_path(str(SCRIPT))["main"]([]) == 1
    assert "there is nothing to measure: the NVIDIA driver sees no GPU" in capsys.readouterr().err
