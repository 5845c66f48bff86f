"""Quantized mixtures of experts: within their bars, the same bits in company, and what reports say of them."""

import json
from pathlib import Path

import numpy as np
import pytest
from step_engine import StepEngine

from enginesmith.builder.build import build
from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.targets.cpu.options import CpuOptions

pytestmark = pytest.mark.slow

TOKENS = [(5 + 37 * i + i * i) % 128 for i in range(24)]


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_quantized_experts(weights: str, tiny_checkpoint, tmp_path: Path) -> None:
    config = BuildConfig.model_validate(
        {"weights": weights, "max_batch_size": 48, "max_num_tokens": 48, "target": CpuOptions(isa="avx2")}
    )
    report = build(tiny_checkpoint("qwen2_moe"), tmp_path / "engine", config)  # which checks it
    assert report.check is not None
    assert report.check.passed

    tactics = [tactic for tactic in report.tactics if tactic.kernel.startswith("experts<")]
    assert [tactic.node for tactic in tactics] == ["model.layers.0.mlp.experts", "model.layers.1.mlp.experts"]
    assert all("2 of 6, 40, 64> (avx2)" in tactic.kernel for tactic in tactics)
    schemes = json.loads((tmp_path / "engine" / "engine.json").read_text())["quantization"]["linear_layers"]
    assert schemes["bf16"] == 2, "a router is not rounded"

    step = StepEngine(tmp_path / "engine")
    try:
        whole = step.run(TOKENS, len(TOKENS))
        np.testing.assert_array_equal(step.run(TOKENS, 7, *[1] * (len(TOKENS) - 7)), whole)
        one, other = step.add(TOKENS), step.add(TOKENS[::-1])
        step.step((one, 20), (other, 3))
        step.step((one, 4), (other, 21))
        np.testing.assert_array_equal(np.stack(one.logits), whole)
    finally:
        step.close()


def test_a_token_reads_its_own_experts_weights(tiny_checkpoint, tmp_path: Path) -> None:
    """What bandwidth is held against: everything but the experts that a token does not take."""
    config = BuildConfig(dtype="fp32", check=False, target=CpuOptions(isa="avx2"))
    report = build(tiny_checkpoint("mixtral"), tmp_path / "engine", config)
    assert report.work is not None
    expert = 3 * 64 * 96 * 4  # bytes of gate, up and down
    everything = report.weights_bytes - report.table_bytes
    idle = 2 * 3 * expert  # three of five, in each of two layers
    assert report.work.linear_bytes + idle == pytest.approx(everything, abs=5 * 64 * 4 + 64)
