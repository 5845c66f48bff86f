"""Builds with a head of int4: its logits are those of the values its integers stand for, the other layers unrounded."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from step_engine import logits_of
from untied import EMBEDDING, HEAD, tensors_of, untied

from enginesmith.builder.build import build
from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.check import BARS, HEAD_BARS, bars
from enginesmith.builder.targets.cpu.options import CpuOptions
from enginesmith.quantization import rtn
from enginesmith.quantization.scheme import WeightScheme, WeightType

CONFIG = BuildConfig(
    dtype="fp32",
    head="int4",
    max_num_tokens=48,
    max_batch_size=48,
    kv_block_size=16,
    target=CpuOptions(isa="avx2"),
    check=False,
)
SCHEME = WeightScheme(WeightType.INT4, 32, symmetric=False)
TOKENS = [(5 + 37 * i + i * i) % 128 for i in range(40)]


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
    tensors = tensors_of(source)
    head = rtn.quantize(tensors[name], SCHEME).dequantize(SCHEME.group_size)
    rounded = untied(source, tmp_path / "checkpoint", embedding=tensors[EMBEDDING], head=head)
    build(rounded, tmp_path / "plain", plain)
    build(source, tmp_path / "unrounded", plain)
    found, expected, before = (logits_of(tmp_path / engine, TOKENS) for engine in ("int4", "plain", "unrounded"))
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
