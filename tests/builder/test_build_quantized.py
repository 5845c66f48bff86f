"""Builds of checkpoints that are quantized already: the engine runs the very weights that Transformers is given."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quantized_models import (
    FP8,
    Grid,
    Stored,
    fp8_values,
    quantized_checkpoint,
    random_grid,
    store_awq,
    store_gptq,
    store_int8,
    store_packed,
)

from enginesmith.builder.build import build
from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.check import BARS, load_reference, make_reference
from enginesmith.builder.targets.cpu.options import CpuOptions
from enginesmith.checkpoint.checkpoint import open_checkpoint
from enginesmith.checkpoint.layouts import bits
from enginesmith.checkpoint.layouts import fp8 as fp8_layout
from enginesmith.errors import BuildError, CheckpointError
from enginesmith.progress import NoProgress

pytestmark = pytest.mark.slow

CONFIG = BuildConfig(
    dtype="fp32", max_num_tokens=48, max_batch_size=48, kv_block_size=16, target=CpuOptions(isa="avx2")
)
Rng = np.random.Generator
Quantizer = Callable[[Rng, str, int, int], Stored]


def gptq(bits: int, symmetric: bool, added: int, *, scattered: bool = False) -> Callable[[Rng, str, int, int], Stored]:
    def quantizer(rng: Rng, name: str, n: int, k: int) -> Stored:
        grid = random_grid(rng, n, k, bits, 32, symmetric=symmetric)
        group = rng.permutation(grid.group) if scattered else grid.group
        grid = Grid(grid.q, grid.zero if symmetric else np.maximum(grid.zero, added), grid.scale, group)
        grid = shrunk(grid, bits)
        return Stored(store_gptq(grid, bits, added), grid.values())

    return quantizer


def shrunk(grid: Grid, bits: int) -> Grid:
    """8-bit integers are larger: smaller scales keep weights alike."""
    return grid if bits == 4 else Grid(grid.q, grid.zero, (grid.scale / 16).astype(grid.scale.dtype), grid.group)


def awq(rng: Rng, name: str, n: int, k: int) -> Stored:
    grid = random_grid(rng, n, k, 4, 32, symmetric=False)
    return Stored(store_awq(grid), grid.values())


def packed(symmetric: bool, group: int, dtype: Any = np.float16) -> Callable[[Rng, str, int, int], Stored]:
    def quantizer(rng: Rng, name: str, n: int, k: int) -> Stored:
        grid = random_grid(rng, n, k, 4, group, symmetric=symmetric, dtype=dtype)
        return Stored(store_packed(grid, 4, symmetric=symmetric), grid.values())

    return quantizer


def int8(rng: Rng, name: str, n: int, k: int) -> Stored:
    grid = shrunk(random_grid(rng, n, k, 8, 0, symmetric=True, dtype=np.float32), 8)
    return Stored(store_int8(grid), grid.values())


def fp8(scale_name: str, rows: int | None, columns: int | None) -> Quantizer:
    """A scale for each block of so many rows and columns; None: of all there are."""

    def quantizer(rng: Rng, name: str, n: int, k: int) -> Stored:
        block = rows or n, columns or k
        weight = rng.normal(0, 2, (n, k)).astype(FP8)
        scale = rng.uniform(0.05, 0.1, (-(-n // block[0]), -(-k // block[1]))).astype(np.float32)
        stored = scale[0] if block == (n, k) else scale
        return Stored({"weight": weight, scale_name: stored}, fp8_values(weight, scale, block))

    return quantizer


fp8_blocks, fp8_odd_blocks = fp8("weight_scale_inv", 32, 32), fp8("weight_scale_inv", 32, 24)
fp8_channels, fp8_tensor = fp8("weight_scale", 1, None), fp8("weight_scale", None, None)


def with_input_scale(quantizer: Quantizer, scale: float) -> Quantizer:
    def quantizer_of_inputs(rng: Rng, name: str, n: int, k: int) -> Stored:
        stored = quantizer(rng, name, n, k)
        return Stored(stored.tensors | {"input_scale": np.full(1, scale, np.float32)}, stored.values)

    return quantizer_of_inputs


def inputs(kind: str, *, dynamic: bool = False) -> dict[str, Any]:
    return {"num_bits": 8, "type": kind, "strategy": "token" if dynamic else "tensor", "dynamic": dynamic}


def compressed(form: str, inputs: dict[str, Any] | None = None, **weights: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": {"type": "int", **weights}, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": group}}


def gptq_config(bits: int, sym: bool, form: str | None = None) -> dict[str, Any]:
    named = {"checkpoint_format": form} if form else {}
    return {"quant_method": "gptq", "bits": bits, "group_size": 32, "sym": sym, **named}


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}
FP8_TENSOR = {"type": "float", "num_bits": 8, "strategy": "tensor", "symmetric": True}
PACKED = {"num_bits": 4, "strategy": "group", "group_size": 32}
CASES = {
    "awq": (AWQ, awq, "int4-g32-zeros"),
    "gptq": (gptq_config(4, True), gptq(4, True, 1), "int4-g32"),
    "gptq-v1-zeros": (gptq_config(4, False), gptq(4, False, 1), "int4-g32-zeros"),
    "gptq-v2-zeros": (gptq_config(4, False, "gptq_v2"), gptq(4, False, 0), "int4-g32-zeros"),
    "gptq-8": (gptq_config(8, True), gptq(8, True, 1), "int8-g32"),
    "gptq-act-order": (gptq_config(4, True), gptq(4, True, 1, scattered=True), "fp32"),
    "int4": (compressed("pack-quantized", symmetric=True, **PACKED), packed(True, 32), "int4-g32"),
    "int4-zeros": (compressed("pack-quantized", symmetric=False, **PACKED), packed(False, 32), "int4-g32-zeros"),
    "int4-channel": (
        compressed("pack-quantized", num_bits=4, strategy="channel", symmetric=True),
        packed(True, 0, np.float32),
        "int4",
    ),
    "int8": (compressed("int-quantized", num_bits=8, strategy="channel", symmetric=True), int8, "int8"),
    "int8-static": (
        compressed("int-quantized", inputs("int"), num_bits=8, strategy="channel", symmetric=True),
        with_input_scale(int8, 0.03),
        "int8-static",
    ),
    "fp8": ({"quant_method": "fp8", "weight_block_size": [32, 32]}, fp8_blocks, "fp8-g32"),
    "fp8-odd-blocks": ({"quant_method": "fp8", "weight_block_size": [32, 24]}, fp8_odd_blocks, "fp32"),
    "fp8-channel": (
        compressed("float-quantized", type="float", num_bits=8, strategy="channel", symmetric=True),
        fp8_channels,
        "fp8",
    ),
    "fp8-dynamic": (
        compressed("float-quantized", inputs("float", dynamic=True), **FP8_TENSOR),
        fp8_tensor,
        "fp8-dynamic",
    ),
    "fp8-static": (
        compressed("float-quantized", inputs("float"), **FP8_TENSOR),
        with_input_scale(fp8_tensor, 0.02),
        "fp8-static",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_the_dequantized_weights(tiny_checkpoint, tmp_path: Path, case: str) -> None:
    config, quantizer, scheme = CASES[case]
    folder = quantized_checkpoint(tiny_checkpoint("qwen3"), tmp_path / "checkpoint", config, quantizer)
    report = build(folder, tmp_path / "engine", CONFIG)
    quantization = json.loads((tmp_path / "engine" / "engine.json").read_text())["quantization"]
    layers = {"fp32": 9} if scheme == "fp32" else {scheme: 8, "int8-g64": 1}
    assert quantization == {"scheme": scheme.partition("-")[0], "linear_layers": layers}
    assert bool(report.dequantized) == (scheme == "fp32")
    assert report.quantized
    assert report.check is not None
    distance, kl = limits_of(scheme)
    assert report.check.distance < distance
    assert report.check.kl < kl
    assert_same_reference(folder)


@pytest.mark.parametrize("case", ["gptq", "gptq-v1-zeros", "awq", "int4", "fp8"])
def test_the_check_sees_a_wrong_reader(tiny_checkpoint, tmp_path: Path, monkeypatch, case: str) -> None:
    """What the check compares with does not come from the readers."""
    config, quantizer, _ = CASES[case]
    folder = quantized_checkpoint(tiny_checkpoint("qwen3"), tmp_path / "checkpoint", config, quantizer)
    if case == "fp8":
        monkeypatch.setattr(fp8_layout, "scaled_fp8", turned(fp8_layout.scaled_fp8))
    else:
        right = bits.centred
        monkeypatch.setattr(bits, "centred", lambda numbers, width: right(numbers[..., ::-1], width))
    with pytest.raises(BuildError, match="distance"):
        build(folder, tmp_path / "engine", CONFIG)


def turned(read: Callable[..., Any]) -> Callable[..., Any]:
    """A reader of FP8 that takes the scales of blocks in the wrong order."""
    return lambda weight, scale, *more: read(weight, scale[::-1], *more)


def limits_of(scheme: str) -> tuple[float, float]:
    """Of the distance and divergence: the reference does not round activations, which 8 bits for a whole row cost."""
    if scheme == "fp32":
        return BARS["fp32"]
    return (1.5, 0.1) if scheme.endswith(("dynamic", "static")) else (0.3, 2e-3)


def assert_same_reference(folder: Path) -> None:
    """The check's reference is the model that loads plain weights of the same values."""
    import torch

    from enginesmith.builder.trace.trace import trace
    from enginesmith.checkpoint.layouts.registry import layout_of
    from enginesmith.checkpoint.weights import bind_weights

    checkpoint = open_checkpoint(folder)
    shapes = {name: p.shape for name, p in trace(checkpoint.config, max_seq_len=128).parameters.items()}
    weights = bind_weights(checkpoint, layout_of(checkpoint), shapes)
    reference = make_reference(weights, 128, 128, NoProgress())
    plain = load_reference(open_checkpoint(folder / "dequantized"))
    with torch.inference_mode():
        for prompt, logits in zip(reference.prompts, reference.logits, strict=True):
            np.testing.assert_array_equal(plain(torch.tensor([prompt])).logits[0].numpy(), logits)


def test_layers_of_several_schemes_stay_whole(tiny_checkpoint, tmp_path: Path) -> None:
    """A plain v_proj keeps its merged q, k and v plain; the quantized halves of a gated MLP stay quantized."""

    def quantizer(rng: Rng, name: str, n: int, k: int) -> Stored | None:
        return None if name.endswith("v_proj.weight") else awq(rng, name, n, k)

    folder = quantized_checkpoint(tiny_checkpoint("qwen3"), tmp_path / "checkpoint", AWQ, quantizer)
    report = build(folder, tmp_path / "engine", CONFIG)
    assert set(report.dequantized.values()) == {"merged with weights that are not quantized"}
    assert len(report.dequantized) == 2
    layers = json.loads((tmp_path / "engine" / "engine.json").read_text())["quantization"]["linear_layers"]
    assert layers == {"int4-g32-zeros": 6, "fp32": 2, "int8-g64": 1}


def test_fused_projections_are_cut_into_rows(tiny_checkpoint, tmp_path: Path) -> None:
    """Phi-3 stores q, k and v, and gate and up, as one weight each."""
    config = compressed("pack-quantized", num_bits=4, strategy="group", group_size=32, symmetric=False)
    folder = quantized_checkpoint(tiny_checkpoint("phi3"), tmp_path / "checkpoint", config, packed(False, 32))
    report = build(folder, tmp_path / "engine", CONFIG)
    layers = json.loads((tmp_path / "engine" / "engine.json").read_text())["quantization"]["linear_layers"]
    assert layers == {"int4-g32-zeros": 8, "int8-g64": 1}
    assert not report.dequantized


def test_quantizing_again_is_refused(tiny_checkpoint, tmp_path: Path) -> None:
    folder = quantized_checkpoint(tiny_checkpoint("qwen3"), tmp_path / "checkpoint", AWQ, awq)
    with pytest.raises(BuildError, match=r"--weights int8 .* already quantized \(AWQ, int4 in groups of 32\)"):
        build(folder, tmp_path / "engine", CONFIG.model_copy(update={"weights": "int8"}))
    assert not (tmp_path / "engine").exists()


def test_a_method_that_is_not_read_is_named(tiny_checkpoint, tmp_path: Path) -> None:
    folder = quantized_checkpoint(tiny_checkpoint("qwen3"), tmp_path / "checkpoint", {"quant_method": "aqlm"}, awq)
    with pytest.raises(
        CheckpointError, match=r"method 'aqlm', .* known: awq, compressed-tensors, fbgemm_fp8, fp8, gptq"
    ):
        build(folder, tmp_path / "engine", CONFIG)


def test_merged_layers_with_scales_of_their_own_inputs_are_dequantized(tiny_checkpoint, tmp_path: Path) -> None:
    """q, k and v read one input; so do gate and up."""

    def quantizer(rng: Rng, name: str, n: int, k: int) -> Stored:
        return with_input_scale(fp8_tensor, 0.03 if name.endswith("v_proj.weight") else 0.02)(rng, name, n, k)

    config = compressed("float-quantized", inputs("float"), **FP8_TENSOR)
    folder = quantized_checkpoint(tiny_checkpoint("qwen3"), tmp_path / "checkpoint", config, quantizer)
    report = build(folder, tmp_path / "engine", CONFIG.model_copy(update={"head": "plain"}))
    assert len(report.dequantized) == 2
    assert all("different scales of their one input: 0.0" in reason for reason in report.dequantized.values())
    layers = json.loads((tmp_path / "engine" / "engine.json").read_text())["quantization"]["linear_layers"]
    assert layers == {"fp8-static": 6, "fp32": 3}


def test_fp8_that_is_not_a_number_is_named(tiny_checkpoint, tmp_path: Path) -> None:
    def quantizer(rng: Rng, name: str, n: int, k: int) -> Stored:
        stored = fp8_blocks(rng, name, n, k)
        if name == "model.layers.1.mlp.down_proj.weight":
            stored.tensors["weight"][3, 5] = np.nan
        return stored

    config = {"quant_method": "fp8", "weight_block_size": [32, 32]}
    folder = quantized_checkpoint(tiny_checkpoint("qwen3"), tmp_path / "checkpoint", config, quantizer)
    with pytest.raises(BuildError, match=r"model\.layers\.1\.mlp\.down_proj\.weight holds FP8 numbers that are NaN"):
        build(folder, tmp_path / "engine", CONFIG.model_copy(update={"check": False}))


def test_a_scale_that_is_not_finite_is_named(tiny_checkpoint, tmp_path: Path) -> None:
    def quantizer(rng: Rng, name: str, n: int, k: int) -> Stored:
        stored = awq(rng, name, n, k)
        if name == "model.layers.1.mlp.down_proj.weight":
            stored.tensors["scales"][0, 5] = np.inf
        return stored

    folder = quantized_checkpoint(tiny_checkpoint("qwen3"), tmp_path / "checkpoint", AWQ, quantizer)
    with pytest.raises(CheckpointError, match=r"model\.layers\.1\.mlp\.down_proj\.scales: holds NaN or an infinity"):
        build(folder, tmp_path / "engine", CONFIG.model_copy(update={"check": False}))
