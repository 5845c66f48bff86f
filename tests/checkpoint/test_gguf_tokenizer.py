"""Tokens of small vocabularies. What is expected is what llama.cpp (build 11549, llama_tokenize) gives for the same
files, special tokens added and parsed."""

import json
from pathlib import Path
from typing import Any

import pytest
from gguf_files import write_vocabulary
from gguf_vocabularies import PROBE, byte_level_vocabulary, sentencepiece_vocabulary
from tokenizers import Tokenizer

from enginesmith.checkpoint.chat_templates import find_chat_templates
from enginesmith.checkpoint.gguf_file import read_gguf
from enginesmith.checkpoint.gguf_pretokenizers import PRETOKENIZERS
from enginesmith.checkpoint.gguf_tokenizer import write_tokenizer
from enginesmith.checkpoint.gguf_vocabulary import read_vocabulary
from enginesmith.errors import CheckpointError

CUTS = {
    name: ids
    for names, ids in json.loads(Path(__file__).with_name("gguf_pretokenizers.json").read_bytes()).items()
    for name in names.split()
}
TEXTS = [
    "",
    " ",
    "abc",
    " abc",
    "  a  b",
    "a<|end|> b",
    "a<|end|>  <tool>c",
    "<s>a</s>b",
    "é\n日 ab\n",
    "cabcab   ",
    "<unk> a",
    "▁a",
    "b <|endoftext|> a",
]
SENTENCEPIECE = [
    (
        {},
        [
            [1],
            [1, 266],
            [1, 265, 262],
            [1, 259, 265, 262],
            [1, 266, 264, 266, 261],
            [1, 264, 273, 266, 261],
            [1, 264, 273, 271, 274, 259, 262],
            [1, 1, 264, 2, 259, 261],
            [1, 259, 269, 270, 233, 154, 168, 265, 270],
            [1, 259, 262, 268, 263, 271],
            [1, 0, 259, 264],
            [1, 259, 264],
            [1, 259, 261, 259, 275, 259, 264],
        ],
    ),
    (
        {"add_space_prefix": False},
        [
            [1],
            [1, 259],
            [1, 268],
            [1, 265, 262],
            [1, 259, 264, 266, 261],
            [1, 260, 273, 259, 261],
            [1, 260, 273, 266, 274, 262],
            [1, 1, 260, 2, 261],
            [1, 269, 270, 233, 154, 168, 265, 270],
            [1, 262, 268, 263, 271],
            [1, 0, 264],
            [1, 264],
            [1, 261, 259, 275, 264],
        ],
    ),
    (
        {"add_bos_token": False, "add_eos_token": True},
        [
            [2],
            [266, 2],
            [265, 262, 2],
            [259, 265, 262, 2],
            [266, 264, 266, 261, 2],
            [264, 273, 266, 261, 2],
            [264, 273, 271, 274, 259, 262, 2],
            [1, 264, 2, 259, 261, 2],
            [259, 269, 270, 233, 154, 168, 265, 270, 2],
            [259, 262, 268, 263, 271, 2],
            [0, 259, 264, 2],
            [259, 264, 2],
            [259, 261, 259, 275, 259, 264, 2],
        ],
    ),
    (
        {"general.name": "Phi-3 mini"},
        [
            [1],
            [1, 266],
            [1, 265, 262],
            [1, 259, 265, 262],
            [1, 266, 264, 266, 261],
            [1, 264, 273, 259, 261],
            [1, 264, 273, 274, 259, 262],
            [1, 1, 264, 2, 259, 261],
            [1, 259, 269, 270, 233, 154, 168, 265, 270],
            [1, 259, 262, 268, 263, 271],
            [1, 0, 259, 264],
            [1, 259, 264],
            [1, 259, 261, 259, 275, 259, 264],
        ],
    ),
]


def convert(path: Path) -> Tokenizer:
    write_tokenizer(read_vocabulary(read_gguf(path)), 64, path.parent)
    return Tokenizer.from_file(str(path.parent / "tokenizer.json"))


@pytest.mark.parametrize("pre", [name for name, pretokenizer in PRETOKENIZERS.items() if pretokenizer.bytes])
def test_cuts(pre: str, tmp_path: Path) -> None:
    tokenizer = convert(byte_level_vocabulary(tmp_path / "x.gguf", pre))
    ids = tokenizer.encode(PROBE).ids
    assert ids == CUTS[pre]
    assert tokenizer.decode(ids) == PROBE


@pytest.mark.parametrize("pre", ["tekken", "gpt-4o", "tiny_aya"])
def test_a_capital_begins_a_piece(pre: str, tmp_path: Path) -> None:
    """In the tokenizers' own patterns, beyond ASCII too; llama.cpp cannot tell case there."""
    pieces = convert(byte_level_vocabulary(tmp_path / "x.gguf", pre)).pre_tokenizer.pre_tokenize_str(
        "abC \u03b5\u03bb\u039b"
    )
    assert [span for _, span in pieces] == [(0, 2), (2, 3), (3, 6), (6, 7)]


@pytest.mark.parametrize(("metadata", "expected"), SENTENCEPIECE)
def test_sentencepiece(metadata: dict[str, Any], expected: list[list[int]], tmp_path: Path) -> None:
    tokenizer = convert(sentencepiece_vocabulary(tmp_path / "x.gguf", **metadata))
    assert [tokenizer.encode(text).ids for text in TEXTS] == expected
    assert tokenizer.decode(tokenizer.encode("  ab \u65e5").ids) == "  ab \u65e5"


def test_special_tokens_are_kept_or_shown(tmp_path: Path) -> None:
    tokenizer = convert(sentencepiece_vocabulary(tmp_path / "x.gguf", add_space_prefix=False))
    ids = tokenizer.encode("a<|end|><tool>").ids
    assert tokenizer.decode(ids) == "a<tool>"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<s>a<|end|><tool>"


def test_unigram(tmp_path: Path) -> None:
    tokens = ["<pad>", "</s>", "<unk>", "▁", "a", "b", "▁ab", "ab"]
    metadata = {
        "scores": [0.0, 0.0, 0.0, -3.0, -2.0, -2.5, -1.0, -1.5],
        "token_type": [3, 3, 2, 1, 1, 1, 1, 1],
        "add_space_prefix": True,
        "remove_extra_whitespaces": True,
    }
    tokenizer = convert(write_vocabulary(tmp_path / "x.gguf", "t5", tokens, metadata))
    expected = {"ab": [6, 1], "  ab  b ": [6, 3, 5, 1], "aba": [6, 4, 1], "": [1], "xx": [3, 2, 1]}
    assert {text: tokenizer.encode(text).ids for text in expected} == expected


def test_chat_templates_by_name(tmp_path: Path) -> None:
    templates = {"tokenizer.chat_template": "plain", "tokenizer.chat_template.tool_use": "with tools"}
    convert(sentencepiece_vocabulary(tmp_path / "x.gguf", **templates))
    settings = json.loads((tmp_path / "tokenizer_config.json").read_bytes())
    assert settings["chat_template"] == [
        {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "with tools"},
    ]
    assert find_chat_templates(tmp_path) == {"default": "plain", "tool_use": "with tools"}
    assert settings["eos_token"] == "</s>"


@pytest.mark.parametrize(
    ("model", "metadata", "message"),
    [
        ("bert", {}, "a tokenizer of kind 'bert' is not imported"),
        ("rwkv", {}, "a tokenizer of kind 'rwkv' is not imported"),
        ("gpt2", {"pre": "unheard-of"}, r"the pre-tokenizer 'unheard-of' \(tokenizer.ggml.pre\) is not known"),
        ("gpt2", {"merges": ["a z"]}, "cannot be converted"),
        ("gpt2", {"add_bos_token": True, "pre": "glm4"}, "asks for BOS around every text, and has no bos_token_id"),
        ("llama", {}, "without scores"),
        ("llama", {"scores": [1.0]}, "scores has 1 numbers for 4 tokens"),
        ("llama", {"scores": [1.0, 2.0, 3.0, 4.0], "add_space_prefix": 3}, "add_space_prefix should be of type bool"),
    ],
)
def test_what_is_refused(model: str, metadata: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write_vocabulary(tmp_path / "x.gguf", model, ["a", "b", "<x>", "ab"], metadata)
    with pytest.raises(CheckpointError, match=message):
        convert(path)


def test_a_token_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="'b' appears twice"):
        convert(write_vocabulary(tmp_path / "x.gguf", "llama", ["a", "b", "b"], {}))
