"""Damaged and hostile GGUF files: each is imported, or refused with our error, in bounded time."""

import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gguf_files import VOCAB_SIZE, write_gguf
from transformers import AutoConfig, AutoModelForCausalLM

from enginesmith.checkpoint.checkpoint import open_checkpoint
from enginesmith.checkpoint.gguf_counts import check_counts
from enginesmith.checkpoint.gguf_split import read_gguf_model
from enginesmith.checkpoint.gguf_tokenizer import write_tokenizer
from enginesmith.checkpoint.gguf_vocabulary import read_vocabulary
from enginesmith.errors import CheckpointError

MUTATIONS, IMPORTS = 600, 12
SECONDS = 10  # of one file
_NUMBERS = (0, 1, 0x7F, 0xFF, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    config = AutoConfig.for_model(
        "llama",
        vocab_size=VOCAB_SIZE,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=32,
    )
    model = AutoModelForCausalLM.from_config(config)
    metadata: dict[str, Any] = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 2.0,
        "rope.dimension_count": 8,
        "tokenizer.ggml.eot_token_id": 5,
        "tokenizer.ggml.eos_token_ids": [1, 5],
        "tokenizer.chat_template": "{{ messages }}",
    }
    return write_gguf(tmp_path_factory.mktemp("valid") / "m.gguf", model, "llama", metadata).read_bytes()


def _flip(rng: random.Random, data: bytearray) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _number(rng: random.Random, data: bytearray) -> None:
    form, width = rng.choice((("<I", 4), ("<Q", 8)))
    struct.pack_into(form, data, rng.randrange(len(data) - 8), rng.choice(_NUMBERS) % (1 << 8 * width))


def _cut(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data)) :]


def _move(rng: random.Random, data: bytearray) -> None:
    begin, to, length = rng.randrange(len(data)), rng.randrange(len(data)), rng.randrange(1, 64)
    data[to : to + length] = data[begin : begin + length]


def mutated(valid: bytes, seed: int) -> bytes:
    """The tables of the file, not its weights, are changed, in one to three places."""
    rng = random.Random(seed)
    tables = valid.rindex(b"output_norm.weight") + 64
    data = bytearray(valid[:tables])
    for _ in range(rng.randint(1, 3)):
        change: Callable[[random.Random, bytearray], None] = rng.choice((_flip, _flip, _number, _number, _move, _cut))
        change(rng, data)
        if len(data) < 16:
            return bytes(data)
    return bytes(data) + (valid[tables:] if len(data) == tables else b"")


def outcome(action: Callable[[], object]) -> str:
    """What came of it; anything but success or our error passes through."""
    began = time.monotonic()
    try:
        action()
        return "read"
    except CheckpointError:
        return "refused"
    finally:
        assert time.monotonic() - began < SECONDS


def test_tables_and_tokenizers(valid: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"

    def read() -> None:
        source, _ = read_gguf_model(path)
        check_counts(source)
        write_tokenizer(read_vocabulary(source), 32, tmp_path)

    outcomes = []
    for seed in range(MUTATIONS):
        path.write_bytes(mutated(valid, seed))
        outcomes.append(outcome(read))
    assert set(outcomes) == {"read", "refused"}


def test_whole_imports(valid: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINESMITH_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "m.gguf"
    path.write_bytes(valid)
    assert outcome(lambda: open_checkpoint(path)) == "read"
    for seed in range(MUTATIONS, MUTATIONS + IMPORTS):
        path.write_bytes(mutated(valid, seed))
        outcome(lambda: open_checkpoint(path))
