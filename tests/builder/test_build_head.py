"""Builds with a head of int4: its logits are those of the values its integers stand for, the other layers unrounded."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from step_engine import StepEngine

from enginesmith.builder.build import build
from enginesmith.builder.check import BARS, HEAD_BARS, bars
from enginesmith.builder.config import BuildConfig
from enginesmith.quantization import rtn
from enginesmith.quantization.scheme import WeightScheme, WeightType

CONFIG = BuildConfig(
    dtype="fp32", head="int4", max_num_tokens=48, max_batch_size=48, kv_block_size=16, isa="avx2", check=False
)
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
SCHEME = WeightScheme(WeightType.INT4, 32, symmetric=False)
TOKENS = [(5 + 37 * i + i * i) % 128 for i in range(40)]


def rounded(source: Path, folder: Path, name: str) -> Path:
    """The model with a head of the values that int4 stands for, apart from the embedding."""
    from safetensors.numpy import load_file, save_file

    tensors = load_file(source / "model.safetensors")
    tensors[HEAD] = rtn.quantize(tensors[name], SCHEME).dequantize(SCHEME.group_size)
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    return folder


def logits_of(engine: Path) -> np.ndarray:
    opened = StepEngine(engine)
    try:
        return opened.run(TOKENS, len(TOKENS))
    finally:
        opened.close()


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name"), [("llama", HEAD), ("llama-linear", EMBEDDING)])
def test_logits_are_those_of_the_integers(
    tiny_checkpoint: Callable[[str], Path], tmp_path: Path, family: str, name: str
) -> None:
    source = tiny_checkpoint(family)
    build(source, tmp_path / "int4", CONFIG)
    layers = json.loads((tmp_path / "int4" / "engine.json").read_text())["quantization"]["linear_layers"]
    assert layers == {"fp32": 8, "int4-g32-zeros": 1}
    plain = CONFIG.model_copy(update={"head": "plain"})
    build(rounded(source, tmp_path / "checkpoint", name), tmp_path / "plain", plain)
    build(source, tmp_path / "unrounded", plain)
    found, expected, before = (logits_of(tmp_path / engine) for engine in ("int4", "plain", "unrounded"))
    spread = before.std()
    assert np.abs(found - expected).max() < 0.05 * spread  # inputs are rounded to 8 bits
    assert np.abs(before - expected).max() > 0.1 * spread


def test_the_check_allows_what_the_head_costs() -> None:
    config = BuildConfig(head="int4")
    assert bars(config) == HEAD_BARS["int4"]
    assert bars(config.model_copy(update={"head": "int8"})) == BARS["int8"]
    assert bars(config.model_copy(update={"head": "plain"})) == BARS["bf16"]
    coarser = config.model_copy(update={"weights": "int4", "group_size": 128})
    assert bars(coarser) == bars(coarser.model_copy(update={"head": "auto"}))
