import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from enginesmith.checkpoint.gguf_counts import check_counts
from enginesmith.checkpoint.gguf_file import GgufFile, GgufTensor
from enginesmith.errors import CheckpointError


def gguf(**metadata: Any) -> GgufFile:
    stated = {"block_count": 2, "embedding_length": 8, "attention.head_count": 2, "context_length": 64, **metadata}
    tensors = [
        GgufTensor(name, shape, 0, np.zeros(0, np.uint8))
        for name, shape in (("token_embd.weight", (100, 8)), ("blk.0.x.weight", (8, 8)), ("blk.1.x.weight", (16, 8)))
    ]
    known = {f"llama.{key}": value for key, value in stated.items() if value is not None}
    return GgufFile(Path("x.gguf"), {"general.architecture": "llama", **known}, tensors)


@pytest.mark.parametrize(
    "metadata",
    [{}, {"attention.head_count_kv": (0, 2)}, {"vocab_size": 100}, {"expert_count": 0}, {"context_length": 1 << 20}],
)
def test_counts_that_the_tensors_bear_out(metadata: dict[str, Any]) -> None:
    check_counts(gguf(**metadata))


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"block_count": 100_000}, "block_count is 100000, but its tensors are of 2 blocks"),
        ({"block_count": 1 << 63}, "but its tensors are of 2 blocks"),
        ({"block_count": None}, "states no llama.block_count"),
        ({"block_count": 0}, "block_count should be at least 1, found 0"),
        ({"block_count": 2.0}, r"block_count should be at least 1, found 2\.0"),
        ({"block_count": True}, "block_count should be at least 1, found True"),
        ({"embedding_length": "8"}, "embedding_length should be at least 1, found '8'"),
        ({"vocab_size": 10**12}, "vocab_size is 1000000000000, but no side of its tensors is longer than 100"),
        ({"attention.head_count": 10**6}, "attention.head_count is 1000000, but no side"),
        ({"attention.head_count_kv": (2, -1)}, r"head_count_kv should be at least 0, found \(2, -1\)"),
        ({"attention.head_count_kv": (2, 10**9)}, "head_count_kv is 1000000000, but no side"),
        ({"attention.key_length": 10**7}, "key_length is 10000000, but no side"),
        ({"expert_count": 10**7}, "expert_count is 10000000, but no side"),
        ({"feed_forward_length": 10**7}, "feed_forward_length is 10000000, but no side"),
        ({"context_length": 1 << 40}, "context_length is 1099511627776, but the limit is 2147483647"),
    ],
)
def test_counts_that_they_do_not(metadata: dict[str, Any], message: str) -> None:
    began = time.monotonic()
    with pytest.raises(CheckpointError, match=message):
        check_counts(gguf(**metadata))
    assert time.monotonic() - began < 1
