"""What becomes of keys: carried over, the same anyway, or refused."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from enginesmith.checkpoint.gguf_config import complete_config
from enginesmith.checkpoint.gguf_file import GgufFile
from enginesmith.errors import CheckpointError

BASE = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}


def completed(model_type: str, architecture: str, metadata: dict[str, Any], **options: Any) -> Any:
    config = AutoConfig.for_model(model_type, **BASE, **options)
    keys = {f"{architecture}.{key}": value for key, value in metadata.items()}
    complete_config(config, GgufFile(Path("x.gguf"), {"general.architecture": architecture, **keys}, []))
    return config


@pytest.mark.parametrize(
    ("model_type", "architecture", "metadata", "expected"),
    [
        ("llama", "llama", {}, {"num_key_value_heads": 4}),
        ("qwen2", "qwen2", {}, {"num_key_value_heads": 4}),
        ("qwen2", "qwen2", {"attention.head_count_kv": 2}, {"num_key_value_heads": 32}),  # the importer's to set
        ("mistral", "llama", {}, {"sliding_window": None}),
        ("gemma2", "gemma2", {}, {"sliding_window": 4096}),
        ("falcon", "falcon", {"attention.layer_norm_epsilon": 0.5}, {"layer_norm_epsilon": 0.5}),
        ("nemotron", "nemotron", {"attention.layer_norm_epsilon": 0.5}, {"norm_eps": 0.5}),
        ("starcoder2", "starcoder2", {"rope.freq_base": 7.0}, {"rope_theta": 7.0}),
        ("qwen3", "qwen3", {"attention.key_length": 32, "attention.value_length": 32}, {"head_dim": 32}),
        ("stablelm", "stablelm", {"rope.dimension_count": 8}, {"partial_rotary_factor": 0.5}),
        ("phi3", "phi3", {"rope.dimension_count": 12}, {"partial_rotary_factor": 0.75}),
        ("gemma2", "gemma2", {"attention.scale": 0.125}, {"query_pre_attn_scalar": 64}),
        ("llama", "llama", {"attention.scale": 0.25, "attention.causal": True, "attention.clamp_kqv": 0.0}, {}),
        ("llama", "llama", {"logit_scale": 1.0}, {}),
        ("llama", "llama", {"attention.shared_kv_layers": 0}, {}),
        (
            *("gemma3n_text", "gemma3n"),
            {"attention.shared_kv_layers": 1, "attention.sliding_window": 512},
            {"num_kv_shared_layers": 1},
        ),
    ],
)
def test_carried_over(model_type: str, architecture: str, metadata: dict[str, Any], expected: dict[str, Any]) -> None:
    config = completed(model_type, architecture, metadata)
    found = config.to_dict() | config.rope_parameters
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"rope.unheard_of": 1}, r"rope\.unheard_of is 1, and this key is not imported"),
        ({"rope.scaling.unheard_of": 1}, r"rope\.scaling\.unheard_of is 1"),
        ({"attention.unheard_of": 0.5}, r"attention\.unheard_of is 0\.5"),
        ({"attention.indexer.top_k": 4}, r"attention\.indexer\.top_k is 4"),
        ({"attention.causal": False}, r"attention\.causal is False, and LlamaConfig knows nothing of it"),
        ({"attention.clamp_kqv": 8.0}, r"attention\.clamp_kqv is 8\.0"),
        ({"attention.max_alibi_bias": 8.0}, r"attention\.max_alibi_bias is 8\.0"),
        ({"attention.sliding_window": 9}, r"sliding_window is 9, and LlamaConfig knows no sliding_window"),
        ({"attention.value_length": 32}, r"value_length is 32, and the heads of LlamaConfig have"),
        ({"attention.scale": 0.5}, r"attention\.scale is 0\.5, and LlamaConfig divides by the root"),
        ({"attention.scale": "x"}, r"attention\.scale should be a number, found 'x'"),
        ({"logit_scale": 0.5}, r"logit_scale is 0\.5, and LlamaConfig knows nothing of it"),
        ({"attention.shared_kv_layers": 1}, r"shared_kv_layers is 1, and LlamaConfig knows no num_kv_shared_layers"),
        ({"embedding_scale": 12.0}, r"embedding_scale is 12\.0"),
    ],
)
def test_refused(metadata: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        completed("llama", "llama", metadata)


@pytest.mark.parametrize("pattern", [0, -1, 7, 2.5, "x", (True,)])
def test_patterns_of_windows_are_checked(pattern: object) -> None:
    with pytest.raises(CheckpointError, match="sliding_window_pattern"):
        completed("gemma3_text", "gemma3", {"attention.sliding_window_pattern": pattern})
