"""Quantized checkpoints: what is written is read again, is close to the model, and does not depend on interruptions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from enginesmith.builder.bind import bind_network
from enginesmith.builder.build import build
from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.quantize import calibrated, methods
from enginesmith.builder.quantize import quantize as module
from enginesmith.builder.quantize.calibration import calibrate
from enginesmith.builder.quantize.layered import LayeredModel
from enginesmith.builder.quantize.quantize import quantize
from enginesmith.builder.quantize.quantize_options import QuantizeConfig
from enginesmith.builder.reference import load_dequantized, load_reference
from enginesmith.builder.trace.trace import trace
from enginesmith.checkpoint.checkpoint import open_checkpoint
from enginesmith.checkpoint.layouts.registry import layout_of
from enginesmith.checkpoint.weights import Weights
from enginesmith.errors import BuildError
from enginesmith.progress import NoProgress
from enginesmith.quantization.feedback import Feedback

TOKENS = np.random.default_rng(7).integers(3, 98, (4, 24))
METHODS: dict[str, dict[str, Any]] = {
    "rtn": {"method": "rtn", "group_size": 32},
    "rtn-8": {"method": "rtn", "bits": 8},
    "awq": {"method": "awq", "group_size": 32},
    "awq-format": {"method": "awq", "group_size": 32, "format": "awq"},
    "gptq": {"method": "gptq", "group_size": 32},
    "gptq-format": {"method": "gptq", "group_size": 32, "format": "gptq"},
    "smoothquant": {"method": "smoothquant"},
    "smoothquant-static": {"method": "smoothquant", "activations": "static"},
    "fp8": {"method": "fp8"},
    "fp8-static": {"method": "fp8", "activations": "static", "per_tensor": True},
}
# Root mean square of the logits' change relative to the logits' spread: 0.34 to 0.39 for four bits, 0.04 for int8 and
# 0.14 for FP8; unrelated logits have 1.4.
BARS = {"int4": 0.6, "int8": 0.1, "fp8": 0.25}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A text for the tokenizer of single characters, random as the models are."""
    letters = np.random.default_rng(3).integers(32, 127, 4000)
    path = tmp_path / "text.txt"
    path.write_text("".join(map(chr, letters)))
    return path


@pytest.fixture
def checkpoint(tiny_checkpoint: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Tiny checkpoints with a tokenizer."""
    from char_tokenizer import write_char_tokenizer

    def make(family: str) -> Path:
        folder = tmp_path / f"source-{family}"
        folder.mkdir()
        for file in tiny_checkpoint(family).iterdir():
            if file.is_file():
                (folder / file.name).write_bytes(file.read_bytes())
        write_char_tokenizer(folder)
        return folder

    return make


def config_of(text: Path, **options: Any) -> QuantizeConfig:
    return QuantizeConfig(calibration=str(text), samples=16, sequence_length=24, **options)


def read(folder: Path) -> Weights:
    opened = open_checkpoint(folder)
    network = trace(opened.config, max_seq_len=128)
    return bind_network(network, opened, layout_of(opened))


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        return model(input_ids=torch.from_numpy(TOKENS), use_cache=False).logits


def distance(folder: Path, original: Path) -> float:
    """How far the logits of a quantized checkpoint are from those of the original."""
    expected = logits(load_reference(open_checkpoint(original)))
    found = logits(load_dequantized(read(folder)))
    return float((found - expected).square().mean().sqrt() / expected.std())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("method", METHODS)
def test_what_is_written_is_close_to_the_model(checkpoint: Any, tmp_path: Path, text: Path, method: str) -> None:
    source, config = checkpoint("qwen2"), config_of(text, **METHODS[method])
    report = quantize(source, tmp_path / "out", config)
    assert distance(tmp_path / "out", source) < BARS[config.scheme.weight.type]
    assert len(report.layers) == 14
    assert report.left_alone == {"lm_head": "it is the head"}
    weights = read(tmp_path / "out")
    assert len(weights.stored) == 14
    assert json.loads((tmp_path / "out" / "quantization_report.json").read_text())["method"] == config.method
    if config.scheme.activation == "static":
        scales = [name for name in weights.checkpoint.tensors if name.endswith(".input_scale")]
        assert len(scales) == 14


@pytest.mark.parametrize("family", ["gemma3_text", "olmo2", "stablelm", "cohere", "opt"])
@pytest.mark.parametrize("method", ["awq", "gptq"])
def test_families(checkpoint: Any, tmp_path: Path, text: Path, family: str, method: str) -> None:
    source = checkpoint(family)
    quantize(source, tmp_path / "out", config_of(text, method=method, group_size=32))
    assert distance(tmp_path / "out", source) < BARS["int4"]


@pytest.mark.parametrize("method", ["rtn", "awq", "gptq"])
def test_an_interrupted_quantization_goes_on(
    checkpoint: Any, tmp_path: Path, text: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, config = checkpoint("gemma3_text"), config_of(text, method=method, group_size=32)
    quantize(source, tmp_path / "whole", config)
    calls: list[str] = []
    original = module.quantize_block

    def failing(block: Any, *arguments: Any) -> Any:
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(block.name)
        return original(block, *arguments)

    for place in (module, calibrated):
        monkeypatch.setattr(place, "quantize_block", failing)
    with pytest.raises(KeyboardInterrupt):
        quantize(source, tmp_path / "out", config)
    assert not (tmp_path / "out").exists()
    assert calls == ["model.layers.0", "model.layers.1"]
    monkeypatch.undo()
    again: list[str] = []
    for place in (module, calibrated):
        monkeypatch.setattr(place, "quantize_block", lambda block, *a: again.append(block.name) or original(block, *a))
    quantize(source, tmp_path / "out", config)
    assert again == ["model.layers.2", "model.layers.3"]
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert {path.name for path in tmp_path.iterdir()} == {"out", "whole", "text.txt", "source-gemma3_text"}


@pytest.mark.parametrize("method", ["awq", "gptq"])
def test_layers_that_read_one_input_share_what_is_made_of_it(
    checkpoint: Any, tmp_path: Path, text: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Hessian is factored once, and the result is that of a factor for every layer, bit by bit."""
    source, config = checkpoint("qwen2"), config_of(text, method=method, group_size=32)
    factored: list[str] = []
    guide, quantize_layer = methods._guide, methods._quantize
    monkeypatch.setattr(methods, "_guide", lambda group, *a: factored.append(group) or guide(group, *a))
    quantize(source, tmp_path / "shared", config)
    assert len(factored) == 8  # of 14 layers
    monkeypatch.setattr(
        methods,
        "_quantize",
        lambda layer, weight, found, _, c: quantize_layer(layer, weight, found, Feedback.of(found.hessian, 32), c),
    )
    quantize(source, tmp_path / "alone", config)
    assert contents(tmp_path / "shared") == contents(tmp_path / "alone")


@pytest.mark.parametrize(("method", "runs"), [("awq", [0, 1]), ("gptq", [0, 0, 1])])
def test_outputs_that_nobody_reads_are_not_computed(
    checkpoint: Any, tmp_path: Path, text: Path, method: str, runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With GPTQ the last decoder layer is run once, to see its inputs; others once more for the next one's."""
    ran: list[int] = []
    original = LayeredModel.run
    monkeypatch.setattr(LayeredModel, "run", lambda self, index, x: ran.append(index) or original(self, index, x))
    quantize(checkpoint("qwen2"), tmp_path / "out", config_of(text, method=method, group_size=32))
    assert ran == runs


def test_layers_on_the_ignore_list_stay_as_they_are(checkpoint: Any, tmp_path: Path, text: Path) -> None:
    source = checkpoint("qwen2")
    config = config_of(text, method="awq", group_size=32, ignore=("re:.*v_proj", "model.layers.1.mlp.up_proj"))
    report = quantize(source, tmp_path / "out", config)
    before, after = open_checkpoint(source), open_checkpoint(tmp_path / "out")
    for name in ("model.layers.0.self_attn.v_proj", "model.layers.1.mlp.up_proj"):
        assert report.left_alone[name] == "ignored"
        np.testing.assert_array_equal(after.read(f"{name}.weight"), before.read(f"{name}.weight"))
    assert len(report.layers) == 11
    assert distance(tmp_path / "out", source) < BARS["int4"]


@pytest.mark.parametrize(("kind", "largest", "dims"), [("int8", 127, (0, 2, 3)), ("fp8", 448, (0, 1, 2, 3))])
@pytest.mark.parametrize("family", ["qwen3", "gemma3_text"])
def test_scales_of_a_kv_cache(
    checkpoint: Any, tmp_path: Path, text: Path, family: str, kind: str, largest: float, dims: tuple[int, ...]
) -> None:
    """They send the largest key and value of the calibration data, with int8 of each head, to the largest number."""
    source = checkpoint(family)
    quantize(source, tmp_path / "out", config_of(text, method="rtn", bits=8, kv_cache=kind))
    opened = open_checkpoint(source)
    tokens = calibrate(opened, 128, config_of(text, method="rtn"), NoProgress()).tokens
    with torch.inference_mode():
        cache = load_reference(opened)(input_ids=torch.from_numpy(tokens), use_cache=True).past_key_values
    weights = read(tmp_path / "out")
    assert len(weights.kv_scales) == len(cache.layers)
    last = len(cache.layers) - 1  # one of full attention, all of whose keys and values the cache holds
    scales = weights.kv_scales[f"model.layers.{last}.self_attn"]
    for found, given in ((scales.key, cache.layers[last].keys), (scales.value, cache.layers[last].values)):
        np.testing.assert_allclose(found * largest, given.abs().amax(dims).reshape(-1), rtol=1e-4)


def test_a_bf16_norm_that_absorbed_scales_loses_nothing(checkpoint: Any, tmp_path: Path, text: Path) -> None:
    """The columns of eight-bit weights make up for the rounding of the norm's weight."""
    from safetensors.torch import load_file, save_file

    source = checkpoint("qwen3")
    tensors = load_file(source / "model.safetensors")
    save_file({name: tensor.bfloat16() for name, tensor in tensors.items()}, source / "model.safetensors")
    quantize(source, tmp_path / "out", config_of(text, method="smoothquant"))
    norm = open_checkpoint(tmp_path / "out").read("model.layers.0.input_layernorm.weight")
    assert norm.dtype == "bfloat16"
    assert not np.array_equal(norm, open_checkpoint(source).read("model.layers.0.input_layernorm.weight"))
    rtn = config_of(text, method="rtn", bits=8)
    quantize(source, tmp_path / "rtn", rtn)
    assert distance(tmp_path / "out", source) < 1.5 * distance(tmp_path / "rtn", source)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "group": ({"method": "rtn", "group_size": 128}, r"model\.layers\.0\.self_attn\.q_proj: groups of 128 .* 64 inputs"),
    "format": ({"method": "fp8", "format": "awq"}, "the AWQ format holds int4"),
    "pattern": ({"method": "rtn", "group_size": 32, "ignore": ("re:(",)}, r"re:\( is no regular expression"),
    "no such layer": ({"method": "rtn", "group_size": 32, "ignore": ("x",)}, "no linear layer is named 'x'"),
    "length": ({"method": "gptq", "group_size": 32, "sequence_length": 4096}, "4096 is more than the 128 tokens"),
    "samples": ({"method": "awq", "group_size": 32, "samples": 1000}, "has 4000 tokens, but 1000 sequences .* 24000"),
    "no file": ({"method": "awq", "group_size": 32, "calibration": "no such"}, "'no such' is no file"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_options(checkpoint: Any, tmp_path: Path, text: Path, case: str) -> None:
    options, message = BAD[case]
    defaults = {"calibration": str(text), "samples": 8, "sequence_length": 24}
    with pytest.raises(BuildError, match=message):
        quantize(checkpoint("qwen3"), tmp_path / "out", QuantizeConfig(**defaults | options))
    assert {path.name for path in tmp_path.iterdir()} == {"text.txt", "source-qwen3"}  # nothing half-done either


def test_options_that_contradict_each_other() -> None:
    with pytest.raises(BuildError, match="fp8 makes 8-bit weights, not 4"):
        QuantizeConfig(method="fp8", bits=4)
    with pytest.raises(BuildError, match=r"samples: .* greater than or equal to 1 .found 0"):
        QuantizeConfig(method="awq", samples=0)
    with pytest.raises(BuildError, match=r"seed: .* greater than or equal to 0 .found -1"):
        QuantizeConfig(method="awq", seed=-1)


@pytest.mark.parametrize("config", ["awq", {"method": "awq"}])
def test_options_of_another_type(checkpoint: Any, tmp_path: Path, config: Any) -> None:
    source = checkpoint("qwen3")
    with pytest.raises(BuildError, match="told by a QuantizeConfig"):
        quantize(source, tmp_path / "out", config)
    with pytest.raises(BuildError, match="told by a QuantizeConfig"):
        build(source, tmp_path / "engine", quantize=config)
    assert {path.name for path in tmp_path.iterdir()} == {"source-qwen3"}


def test_a_weight_that_is_not_finite_is_named(checkpoint: Any, tmp_path: Path, text: Path) -> None:
    from safetensors.torch import load_file, save_file

    source = checkpoint("qwen3")
    tensors = load_file(source / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][3, 4] = np.nan
    save_file(tensors, source / "model.safetensors")
    for options in ({"method": "rtn"}, {"method": "awq"}):
        with pytest.raises(BuildError, match=r"model\.layers\.1\.mlp\.up_proj\.weight holds nan at \[3, 4\]"):
            quantize(source, tmp_path / "out", config_of(text, group_size=32, **options))


@pytest.mark.slow
def test_a_build_that_quantizes_first(checkpoint: Any, tmp_path: Path, text: Path) -> None:
    """Its engine is that of the checkpoint that `quantize` writes; nothing else is left."""
    config, options = BuildConfig(dtype="fp32", max_num_tokens=48), config_of(text, method="awq", group_size=32)
    source = checkpoint("qwen3")
    report = build(source, tmp_path / "both", config, quantize=options)
    quantize(source, tmp_path / source.name / "quantized", options)
    build(tmp_path / source.name / "quantized", tmp_path / "after", config)
    weights = [(tmp_path / name / "weights.bin").read_bytes() for name in ("both", "after")]
    assert weights[0] == weights[1]
    assert report.quantization is not None
    assert report.quantization["logits"]["kl"] > 0
    assert report.checkpoint == str(source)
    manifest = json.loads((tmp_path / "both" / "engine.json").read_text())
    assert manifest["model"]["name"] == source.name
    assert not list(tmp_path.glob(".*"))
    with pytest.raises(BuildError, match="exclude each other"):
        build(source, tmp_path / "both", config.model_copy(update={"weights": "int8"}), quantize=options)


def test_quantizing_again_is_refused(checkpoint: Any, tmp_path: Path) -> None:
    config = QuantizeConfig(method="rtn", group_size=32)
    quantize(checkpoint("qwen3"), tmp_path / "out", config)
    with pytest.raises(BuildError, match=r"already quantized .compressed-tensors"):
        quantize(tmp_path / "out", tmp_path / "again", config)
