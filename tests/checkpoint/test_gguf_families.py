"""Small models of several architectures, written as llama.cpp's converter does: what is imported is what they were."""

from pathlib import Path
from typing import Any

import pytest
import torch
from gguf_files import VOCAB_SIZE, write_gguf
from transformers import AutoConfig, AutoModelForCausalLM

from enginesmith.checkpoint.checkpoint import open_checkpoint
from enginesmith.errors import CheckpointError

COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 8, "sliding_window": 4}
SLIDING, FULL = "sliding_attention", "full_attention"
# architecture, Transformers' model type, what its config has, what its GGUF metadata have
FAMILIES = {
    "llama": ("llama", "llama", {"rope_theta": 5000.0, "tie_word_embeddings": False}, {"rope.dimension_count": 8}),
    "llama, tied": ("llama", "llama", {"tie_word_embeddings": True}, {"rope.dimension_count": 8}),
    "qwen2": ("qwen2", "qwen2", {"tie_word_embeddings": True}, {}),
    "qwen3": ("qwen3", "qwen3", {"head_dim": 16}, {"attention.key_length": 16}),
    "phi3": ("phi3", "phi3", {"sliding_window": 4}, {"attention.sliding_window": 4, "rope.dimension_count": 8}),
    "gemma2": (
        "gemma2",
        "gemma2",
        {**GEMMA, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0},
        {
            "attention.key_length": 16,
            "attention.sliding_window": 4,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma3": (
        "gemma3",
        "gemma3_text",
        {
            **GEMMA,
            "layer_types": [SLIDING, FULL, SLIDING],
            "rope_parameters": {
                SLIDING: {"rope_type": "default", "rope_theta": 500.0},
                FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 9000.0},
            },
        },
        {
            "attention.key_length": 16,
            "attention.sliding_window": 4,
            "attention.sliding_window_pattern": [True, False, True],
            "rope.freq_base_swa": 500.0,
            "rope.freq_base": 9000.0,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
        },
    ),
}


def make(model_type: str, options: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **{**COMMON, **options})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():  # norms that are not all alike, attention that is not flat
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_the_model(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINESMITH_CACHE", str(tmp_path / "cache"))
    architecture, model_type, options, metadata = FAMILIES[family]
    theta = {"rope.freq_base": options.get("rope_theta", 10000.0)}
    model = make(model_type, options)
    folder = open_checkpoint(write_gguf(tmp_path / "m.gguf", model, architecture, theta | metadata)).path
    imported: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert type(imported) is type(model)
    tokens = torch.arange(2, 22)[None]
    with torch.no_grad():
        torch.testing.assert_close(imported(tokens).logits, model(tokens).logits, rtol=1e-4, atol=1e-4)


def test_what_the_model_cannot_express_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINESMITH_CACHE", str(tmp_path / "cache"))
    model = make("llama", {})
    path = write_gguf(tmp_path / "m.gguf", model, "llama", {"attn_logit_softcapping": 50.0})
    with pytest.raises(CheckpointError, match=r"attn_logit_softcapping is 50\.0, and LlamaConfig knows no"):
        open_checkpoint(path)


def test_a_model_in_two_parts_is_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its head is in the second part, so that the first alone looks like a model with a tied one."""
    monkeypatch.setenv("ENGINESMITH_CACHE", str(tmp_path / "cache"))
    model = make("llama", {"tie_word_embeddings": False})
    path = write_gguf(tmp_path / "m-00001-of-00002.gguf", model, "llama", {"rope.dimension_count": 8}, parts=2)
    folder = open_checkpoint(path).path
    assert folder.name.startswith("m-")
    imported: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokens = torch.arange(2, 22)[None]
    with torch.no_grad():
        torch.testing.assert_close(imported(tokens).logits, model(tokens).logits, rtol=1e-4, atol=1e-4)
