"""Weights by channel have scales of float32: a power of two moved from one layer to the next changes nothing."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from step_engine import StepEngine

from enginesmith.builder.build import build
from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.targets.cpu.options import CpuOptions

pytestmark = pytest.mark.slow

TOKENS = [(5 + 37 * i) % 128 for i in range(12)]


def rescaled(source: Path, folder: Path, factor: float) -> Path:
    """The same model, whose up projections are larger by `factor`, and down projections smaller."""
    tensors = load_file(source / "model.safetensors")
    for name, values in tensors.items():
        if name.endswith(("up_proj.weight", "down_proj.weight")):
            tensors[name] = values * np.float32(factor if "up_proj" in name else 1 / factor)
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    shutil.copyfile(source / "config.json", folder / "config.json")
    return folder


@pytest.mark.parametrize("weights", ["int8", "fp8"])
def test_scales_of_channels(tiny_checkpoint, tmp_path: Path, weights: str) -> None:
    source = tiny_checkpoint("mistral")
    options = {
        "max_num_tokens": 16,
        "max_batch_size": 16,
        "kv_block_size": 16,
        "target": CpuOptions(isa="avx2"),
        "dtype": "fp32",
    }
    logits = []
    for factor in (1, 2.0**24, 2.0**60):
        folder = rescaled(source, tmp_path / f"model-{factor}", factor)
        build(folder, tmp_path / f"engine-{factor}", BuildConfig(weights=weights, **options))
        linear = json.loads((tmp_path / f"engine-{factor}" / "engine.json").read_text())["quantization"]
        assert weights in linear["linear_layers"]
        engine = StepEngine(tmp_path / f"engine-{factor}")
        logits.append(engine.run(TOKENS, len(TOKENS)))
        engine.close()
    np.testing.assert_array_equal(logits[1], logits[0])
    np.testing.assert_array_equal(logits[2], logits[0])
