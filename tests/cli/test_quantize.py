"""`enginesmith quantize`, and `build --quantize`, as processes."""

from pathlib import Path
from typing import Any

import pytest


def test_a_summary_and_what_to_do_next(cli: Any, checkpoint: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    done = cli("quantize", checkpoint, "-o", output, "--method", "rtn", "--bits", 8, "--ignore", "re:.*down_proj")
    assert done.returncode == 0, done.stderr
    assert "rtn, stored as compressed-tensors" in done.stdout
    assert "12 quantized, 2 (ignored), 1 (it is the head) left alone" in done.stdout
    assert "Furthest off, relative to the weights" in done.stdout
    assert f"enginesmith build {output} -o ENGINE" in done.stderr
    again = cli("quantize", output, "-o", tmp_path / "again", "--method", "rtn")
    assert again.returncode == 2
    assert "already quantized" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--method", "rtn", "--group-size", 48), "'48' is not one of '32', '64', '128', '-1'"),
        (("--method", "rtn"), "model.layers.0.self_attn.q_proj: groups of 128 weights are longer than its 64 inputs"),
        (("--method", "fp8", "--bits", 4), "fp8 makes 8-bit weights, not 4"),
        (("--method", "fp8", "--group-size", 128), "fp8 has a scale for each channel, or one with per_tensor"),
        (("--method", "rtn", "--per-tensor"), "per_tensor goes with fp8, not with rtn"),
        (("--method", "rtn", "--bits", 8, "--asymmetric"), "zero points (asymmetric) are for 4 bits in groups only"),
        (("--method", "rtn", "--activations", "static"), "static activations go with 8 bits only, not with 4"),
        (("--method", "awq", "--bits", 8, "--calibration", "no such"), "'no such' is no file"),
        ((), "Missing option '--method'"),
    ],
)
def test_bad_options(cli: Any, checkpoint: Path, tmp_path: Path, arguments: tuple[object, ...], message: str) -> None:
    done = cli("quantize", checkpoint, "-o", tmp_path / "out", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_options_of_a_quantization_need_one(cli: Any, build_flags: list[object], tmp_path: Path) -> None:
    done = cli(*build_flags, "-o", tmp_path / "engine", "--bits", 4, "--ignore", "x")
    assert done.returncode == 2
    assert "--bits, --ignore: only with --quantize METHOD" in done.stderr
    both = cli(*build_flags, "-o", tmp_path / "engine", "--quantize", "rtn", "--bits", 8, "--weights", "int8")
    assert both.returncode == 2
    assert "exclude each other" in both.stderr
