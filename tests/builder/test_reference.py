"""Nothing in a checkpoint's folder but its tensors and what config.json says of the network reaches Transformers."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import FAMILIES
from transformers import LlamaConfig

from enginesmith.builder.reference import forward, load_reference
from enginesmith.builder.trace.config_facts import cleaned
from enginesmith.builder.trace.skeleton import causal_class
from enginesmith.checkpoint.checkpoint import open_checkpoint
from enginesmith.errors import BuildError, EnginesmithError

# Each would make Transformers fail, fetch code, or take gigabytes.
HOSTILE: dict[str, Any] = {
    "_attn_implementation": "flash_attention_2",
    "_attn_implementation_internal": "flash_attention_2",
    "attn_implementation": "org/kernels",
    "_experts_implementation": "org/kernels",
    "experts_implementation": {"": "org/kernels"},
    "auto_map": {"AutoModelForCausalLM": "evil.Model", "AutoConfig": "org/evil--evil.Config"},
    "dtype": "no_such_dtype",
    "torch_dtype": "load",
    "quantization_config": {"quant_method": "no_such_method"},
    "compression_config": {"quant_method": "no_such_method"},
    "transformers_weights": "../elsewhere.bin",
    "fusion_config": {"no": "such"},
    "num_labels": 10**12,
    "output_attentions": True,
    "return_dict": False,
    "problem_type": "no such",
    "transformers_version": 7,
}
TOKENS = [3, 17, 5, 99]


@pytest.fixture
def edited(tiny_checkpoint: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """A copy of the llama checkpoint with changes to its config.json."""

    def make(**changes: object) -> Path:
        folder = tmp_path / "edited"
        shutil.copytree(tiny_checkpoint("llama"), folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))
        return folder

    return make


def logits(folder: Path) -> np.ndarray:
    return forward(load_reference(open_checkpoint(folder)), TOKENS)


def test_what_does_not_shape_the_network_has_no_say(
    edited: Callable[..., Path], tiny_checkpoint: Callable[[str], Path]
) -> None:
    folder = edited(**HOSTILE)
    (folder / "generation_config.json").write_text('{"temperature": "hot", "cache_implementation": "no such"}')
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "org/evil"}')
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text("raise SystemExit")
    np.testing.assert_array_equal(logits(folder), logits(tiny_checkpoint("llama")))


def test_nested_configs_are_cleaned_too() -> None:
    config = {"model_type": "llava", "text_config": HOSTILE | {"hidden_size": 8}, "layers": [HOSTILE]}
    assert cleaned(config) == {"model_type": "llava", "text_config": {"hidden_size": 8}, "layers": [{}]}


def test_floats_that_json_lacks_are_read_as_transformers_writes_them(tmp_path: Path) -> None:
    LlamaConfig(time_step_limit=(0.0, math.inf), lowest=-math.inf).save_pretrained(tmp_path)  # pyright: ignore[reportCallIssue]
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["time_step_limit"] == [0.0, {"__float__": "Infinity"}]
    assert cleaned(written)["time_step_limit"] == [0.0, math.inf]
    assert cleaned(written)["lowest"] == -math.inf
    assert cleaned({"a": {"__float__": "none"}, "b": {"__float__": [1]}}) == {
        "a": {"__float__": "none"},
        "b": {"__float__": [1]},
    }


@pytest.mark.parametrize("limit", [[0.0, {"__float__": "Infinity"}], [0.0, math.inf]])
def test_a_mamba_s_limits_of_time_steps_are_accepted(limit: list[object]) -> None:
    _, config = causal_class({"model_type": "mamba2", "time_step_limit": limit})
    assert tuple(config.time_step_limit) == (0.0, math.inf)


def test_a_broken_config_is_an_error_of_ours(edited: Callable[..., Path]) -> None:
    with pytest.raises(EnginesmithError, match="no such thing"):
        load_reference(open_checkpoint(edited(hidden_act="no such thing")))


def test_a_failing_forward_is_an_error_of_ours() -> None:
    class Model(torch.nn.Module):
        def forward(self, **_: object) -> None:
            raise KeyError("boom")

    with pytest.raises(BuildError, match="Model of Transformers fails on 4 tokens: 'boom'"):
        forward(Model(), TOKENS)


def test_the_class_is_that_of_the_model_type() -> None:
    model_class, config = causal_class({**FAMILIES["llama"], "architectures": ["EvilModel"]})
    assert (model_class.__name__, config.hidden_size) == ("LlamaForCausalLM", 64)
