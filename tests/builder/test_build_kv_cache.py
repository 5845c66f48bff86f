"""Builds with a quantized KV cache: what was asked for, what a checkpoint says, and what the engine makes of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quantized_models import Grid, Stored, quantized_checkpoint, random_grid, store_int8

from enginesmith.builder.build import build
from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.check import KV_BARS, bars
from enginesmith.builder.report import BuildReport
from enginesmith.builder.targets.cpu.options import CpuOptions
from enginesmith.errors import BuildError, CheckpointError

CONFIG = BuildConfig(
    dtype="fp32", max_num_tokens=48, max_batch_size=48, kv_block_size=16, target=CpuOptions(isa="avx2")
)
LAYERS, KV_HEADS, HEAD_DIM = 2, 2, 16


def kv_cache_of(engine: Path) -> dict[str, Any]:
    return json.loads((engine / "engine.json").read_text())["kv_cache"]


def source_of(engine: Path) -> str:
    return (engine / "cpu" / "engine.cpp").read_text()


def with_scales(source: Path, folder: Path, kind: str | None, shape: tuple[int, ...] = (1,)) -> Path:
    """A tiny checkpoint of int8 weights with static scales for the cache; `kind` None says nothing of them."""

    def quantizer(rng: np.random.Generator, name: str, n: int, k: int) -> Stored:
        grid = random_grid(rng, n, k, 8, 0, symmetric=True, dtype=np.float32)
        grid = Grid(grid.q, grid.zero, (grid.scale / 16).astype(np.float32), grid.group)
        tensors = store_int8(grid)
        if name.endswith("o_proj.weight"):
            largest = 127 if kind == "int" else 448
            scale = np.full(shape, 8 / largest, np.float32)
            tensors |= {"../k_scale": scale, "../v_scale": scale / 2}
        return Stored(tensors, grid.values())

    weights = {"num_bits": 8, "type": "int", "strategy": "channel"}
    scheme = {"num_bits": 8, "type": kind, "strategy": "tensor", "symmetric": True, "dynamic": False}
    config = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "kv_cache_scheme": scheme if kind else None,
    }
    quantized_checkpoint(source, folder, config, quantizer)
    _rename(folder / "model.safetensors")
    return folder


def _rename(path: Path) -> None:
    """Tensors of "a.b.../c" to "a.c"."""
    from safetensors.numpy import load_file, save_file

    tensors = {name.replace(".o_proj.../", "."): tensor for name, tensor in load_file(path).items()}
    save_file(tensors, path, {"format": "pt"})


def checked(report: BuildReport, kind: str) -> None:
    assert report.check is not None
    assert report.check.distance < KV_BARS[kind][0] / 4
    assert report.check.kl < KV_BARS[kind][1] / 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_a_cache_that_was_asked_for(tiny_checkpoint, tmp_path: Path, kind: Any) -> None:
    config = CONFIG.model_copy(update={"kv_cache": kind})
    report = build(tiny_checkpoint("gemma3_text"), tmp_path / "engine", config)
    checked(report, kind)
    kv = kv_cache_of(tmp_path / "engine")
    token = KV_HEADS * (2 * HEAD_DIM + 2 * 4)  # a byte an element, and two scales
    assert kv["dtype"] == kind
    assert [group["bytes_per_block"] for group in kv["groups"]] == [2 * 16 * token] * 2
    assert report.kv_bytes_per_token == 4 * token
    assert f"PerToken<es::{kind.capitalize()}>" in source_of(tmp_path / "engine")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "dtype", "shape"), [("int", "int8", (1,)), ("float", "fp8", (KV_HEADS, 1, 1))])
def test_a_cache_that_the_checkpoint_asks_for(
    tiny_checkpoint, tmp_path: Path, kind: str, dtype: str, shape: tuple[int, ...]
) -> None:
    checkpoint = with_scales(tiny_checkpoint("qwen3"), tmp_path / "checkpoint", kind, shape)
    report = build(checkpoint, tmp_path / "engine", CONFIG)
    checked(report, dtype)
    kv = kv_cache_of(tmp_path / "engine")
    assert kv["dtype"] == dtype
    assert kv["groups"][0]["bytes_per_block"] == LAYERS * 16 * KV_HEADS * 2 * HEAD_DIM
    assert f"PerHead<es::{dtype.capitalize()}>" in source_of(tmp_path / "engine")


@pytest.mark.slow
def test_scales_for_another_type_are_not_used(tiny_checkpoint, tmp_path: Path) -> None:
    checkpoint = with_scales(tiny_checkpoint("qwen3"), tmp_path / "checkpoint", "float")
    build(checkpoint, tmp_path / "engine", CONFIG.model_copy(update={"kv_cache": "int8", "check": False}))
    assert kv_cache_of(tmp_path / "engine")["dtype"] == "int8"
    assert "PerToken<es::Int8>" in source_of(tmp_path / "engine")


@pytest.mark.slow
def test_a_checkpoint_that_says_nothing_has_a_plain_cache(tiny_checkpoint, tmp_path: Path) -> None:
    checkpoint = with_scales(tiny_checkpoint("qwen3"), tmp_path / "checkpoint", None)
    build(checkpoint, tmp_path / "engine", CONFIG.model_copy(update={"check": False}))
    assert kv_cache_of(tmp_path / "engine")["dtype"] == "fp32"


def test_scales_that_do_not_fit_the_heads_are_named(tiny_checkpoint, tmp_path: Path) -> None:
    checkpoint = with_scales(tiny_checkpoint("qwen3"), tmp_path / "checkpoint", "int", (3,))
    message = r"model\.layers\.0\.self_attn\.k_scale has 3 scales for 2 key-value heads"
    with pytest.raises(BuildError, match=message):
        build(checkpoint, tmp_path / "engine", CONFIG)
    assert not (tmp_path / "engine").exists()


def test_zero_points_are_refused(tiny_checkpoint, tmp_path: Path) -> None:
    checkpoint = with_scales(tiny_checkpoint("qwen3"), tmp_path / "checkpoint", "int")
    config = json.loads((checkpoint / "config.json").read_text())
    config["quantization_config"]["kv_cache_scheme"]["symmetric"] = False
    (checkpoint / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="with zero points, which the KV cache cannot have"):
        build(checkpoint, tmp_path / "engine", CONFIG)


def test_the_larger_bar_holds() -> None:
    plain, coarse = CONFIG, CONFIG.model_copy(update={"weights": "int4"})
    assert bars(plain.model_copy(update={"kv_cache": "fp8"})) == KV_BARS["fp8"]
    assert bars(coarse.model_copy(update={"kv_cache": "fp8"})) == bars(coarse)
