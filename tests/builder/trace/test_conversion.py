"""Checkpoints as they are published, whose tensors Transformers renames, joins and cuts while it loads them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import FAMILIES, MIXTURES
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from enginesmith.builder.bind import bind_network
from enginesmith.builder.trace.conversion import conversions
from enginesmith.builder.trace.trace import trace
from enginesmith.checkpoint.checkpoint import Checkpoint, open_checkpoint
from enginesmith.checkpoint.layouts.registry import layout_of
from enginesmith.errors import CheckpointError

Saved = Callable[[dict[str, Any]], Path]
GRANITE = {
    "model_type": "granitemoe", "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 2, "vocab_size": 64,
    "num_attention_heads": 2, "num_key_value_heads": 1, "num_local_experts": 3, "num_experts_per_tok": 2,
}  # fmt: skip
HRM = {**GRANITE, "model_type": "hrm_text", "head_dim": 16}
CONFIGS = {
    "mixtral": MIXTURES["mixtral"],
    "deepseek_v3": MIXTURES["deepseek_v3"],
    "gpt_neox": FAMILIES["gpt_neox"],
    "granitemoe": GRANITE,
    "hrm_text": HRM,
}


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    """A function from a config.json to a folder with its random checkpoint, saved as Transformers publishes it."""

    def save(config: dict[str, Any]) -> Path:
        made = CONFIG_MAPPING[config["model_type"]].from_dict(config)
        AutoModelForCausalLM.from_config(made, dtype=torch.float32).save_pretrained(tmp_path)
        return tmp_path

    return save


def loaded(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """The parameters that Transformers makes of the checkpoint."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint.path, dtype=torch.float32)
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def shapes(checkpoint: Checkpoint) -> dict[str, tuple[int, ...]]:
    return {name: info.shape for name, info in checkpoint.tensors.items()}


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_what_transformers_makes_of_the_checkpoint(name: str, saved: Saved) -> None:
    checkpoint = open_checkpoint(saved(CONFIGS[name]))
    made, expected = conversions(checkpoint.config, shapes(checkpoint)), loaded(checkpoint)
    assert made
    assert set(expected) <= made.keys() | checkpoint.tensors.keys()
    for parameter, assembly in made.items():
        values = assembly.region(tuple(map(range, assembly.shape)), checkpoint.read)
        np.testing.assert_array_equal(values, expected[parameter])


def test_names_of_the_model_itself_are_no_conversions() -> None:
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING["mixtral"].from_dict(MIXTURES["mixtral"]))
    stored = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    assert conversions(MIXTURES["mixtral"], stored) == {}


def test_layers_that_are_stored_as_two() -> None:
    """Of dory: an attention block, then an MLP block; Transformers never writes it so."""
    config = {**GRANITE, "model_type": "dory", "head_dim": 16}
    stored = {"backbone.layers.2.mixer.q_proj.weight": (32, 32), "backbone.layers.3.mixer.up_proj.weight": (24, 32)}
    assert {name: assembly.names() for name, assembly in conversions(config, stored).items()} == {
        "model.layers.1.self_attn.q_proj.weight": ["backbone.layers.2.mixer.q_proj.weight"],
        "model.layers.1.mlp.up_proj.weight": ["backbone.layers.3.mixer.up_proj.weight"],
    }


def test_an_expert_that_is_missing_is_an_error(saved: Saved) -> None:
    stored = shapes(open_checkpoint(saved(MIXTURES["mixtral"])))
    del stored["model.layers.1.block_sparse_moe.experts.3.w3.weight"]
    expected = (
        r"layers\.1\.mlp\.experts\.gate_up_proj cannot be made of the 9 tensors .*every weight file was downloaded"
    )
    with pytest.raises(CheckpointError, match=expected):
        conversions(MIXTURES["mixtral"], stored)


def test_quantized_experts_are_refused(saved: Saved) -> None:
    """As a quantizer stores them: each expert's projections as modules of several tensors."""
    folder = saved(MIXTURES["mixtral"])
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if ".experts." in name:
            for part in ("qweight", "qzeros", "scales"):
                tensors[f"{name.removesuffix('.weight')}.{part}"] = torch.zeros(8, 8, dtype=torch.int32)
        else:
            tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}
    (folder / "config.json").write_text(json.dumps(config))
    checkpoint = open_checkpoint(folder)
    network = trace(checkpoint.config, max_seq_len=128)
    with pytest.raises(CheckpointError, match=r"experts of its mixtures are quantized .*Build the unquantized"):
        bind_network(network, checkpoint, layout_of(checkpoint))
