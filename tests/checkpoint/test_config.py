import pytest

from enginesmith.checkpoint import config as facts
from enginesmith.errors import CheckpointError


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"dtype": "bfloat16"}, "bfloat16"),
        ({"torch_dtype": "float16"}, "float16"),
        ({"torch_dtype": "torch.float32"}, "float32"),
        ({"text_config": {"dtype": "bfloat16"}}, "bfloat16"),
        ({"dtype": None, "torch_dtype": "float32"}, "float32"),
        ({}, None),
    ],
)
def test_stored_dtype(config: dict, expected: str | None) -> None:
    assert facts.stored_dtype(config) == expected


@pytest.mark.parametrize(
    ("config", "head_dim", "kv_heads"),
    [
        ({"hidden_size": 64, "num_attention_heads": 4}, 16, 4),
        ({"hidden_size": 64, "num_attention_heads": 4, "head_dim": None, "num_key_value_heads": None}, 16, 4),
        ({"hidden_size": 64, "num_attention_heads": 4, "head_dim": 32, "num_key_value_heads": 2}, 32, 2),
        ({"n_embd": 60, "n_head": 3}, 20, 3),
        ({"n_embd": 60, "n_head": 3, "multi_query": True}, 20, 1),
        ({"text_config": {"hidden_size": 8, "num_attention_heads": 2}}, 4, 2),
        ({}, None, None),
    ],
)
def test_heads(config: dict, head_dim: int | None, kv_heads: int | None) -> None:
    assert facts.head_dim(config) == head_dim
    assert facts.num_key_value_heads(config) == kv_heads


@pytest.mark.parametrize(
    "key", ["max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "seq_length"]
)
def test_max_positions(key: str) -> None:
    assert facts.max_positions({key: 77}) == 77
    assert facts.max_positions({}) is None


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, None),
        ({"rope_scaling": None}, None),
        ({"rope_theta": 1e4}, {"rope_type": "default", "rope_theta": 1e4}),
        ({"rope_theta": 5, "rope_scaling": {"type": "linear", "factor": 2}},
         {"rope_type": "linear", "factor": 2, "rope_theta": 5}),
        ({"rope_theta": 5, "rope_scaling": {"rope_type": "yarn", "type": "old", "factor": 2}},
         {"rope_type": "yarn", "factor": 2, "rope_theta": 5}),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 7}}, {"rope_type": "llama3", "rope_theta": 7}),
        ({"rope_parameters": {"full": {"rope_theta": 1}, "sliding": {"rope_type": "linear", "factor": 8}}},
         {"full": {"rope_type": "default", "rope_theta": 1}, "sliding": {"rope_type": "linear", "factor": 8}}),
    ],
)  # fmt: skip
def test_rope_parameters(config: dict, expected: dict | None) -> None:
    assert facts.rope_parameters(config) == expected


def test_bad_rope() -> None:
    with pytest.raises(CheckpointError, match="rope_scaling should be an object"):
        facts.rope_parameters({"rope_scaling": "linear"})
