"""Sizes in config.json that the weights cannot have are refused before a model of these sizes is made."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from enginesmith.checkpoint.safetensors import TensorInfo
from enginesmith.checkpoint.sizes import check_sizes
from enginesmith.errors import CheckpointError

GOOD = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64, "head_dim": 16}


def check(**changes: Any) -> None:
    info = TensorInfo("a", np.dtype("f4"), (50, 60), Path("x"), 0, 12000)
    check_sizes(Path("config.json"), GOOD | changes, [info] * 3)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("num_hidden_layers", 10**9, "number of layers is 1000000000, but the weights have only 3 tensors of 9000"),
        ("num_hidden_layers", 0, "number of layers is 0, and must be at least 1"),
        ("num_attention_heads", 0, "number of attention heads is 0"),
        ("num_key_value_heads", -2, "number of key and value heads is -2"),
        ("hidden_size", 9001, "hidden size is 9001, but"),
        ("head_dim", 10**9, "size of a head is 1000000000, but"),
        ("vocab_size", 10**12, "size of the vocabulary is 1000000000000, but"),
        ("n_layer", 10**9, "n_layer is 1000000000, but"),  # another name of the same: a model class may take either
        ("num_local_experts", 10**6, "num_local_experts is 1000000, but"),
        ("vision_config", {"num_hidden_layers": 10**7}, "num_hidden_layers is 10000000, but"),
        ("max_position_embeddings", 2**31, "longest sequence is 2147483648, and must be at most 2147483647"),
        ("max_position_embeddings", 1, "longest sequence is 1, and must be at least 2"),
    ],
)
def test_impossible_sizes(key: str, value: object, message: str):
    with pytest.raises(CheckpointError, match=message):
        check(**{key: value})


def test_possible_sizes():
    check(num_hidden_layers=3, hidden_size=9000, max_position_embeddings=10**7)
    check(head_dim=None, num_key_value_heads=None)
