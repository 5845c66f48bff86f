"""The tokenizer's own additions: special tokens, single tokens, damaged files."""

import base64
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from enginesmith.errors import ChatTemplateError, EngineError, RequestError
from enginesmith.runtime.tokenizer import Tokenizer, load_tokenizer


def test_special_tokens_are_found_in_either_file(byte_level_tokenizer: Path, tmp_path: Path):
    tokenizer = Tokenizer(byte_level_tokenizer)
    assert tokenizer.special_tokens == {"bos_token": "<|start|>", "eos_token": "<|end|>"}
    assert tokenizer.special_ids == {0, 1}
    folder = tmp_path / "tokenizer"
    shutil.copytree(byte_level_tokenizer, folder)
    (folder / "tokenizer_config.json").unlink()
    (folder / "special_tokens_map.json").write_text('{"pad_token": {"content": "<|end|>"}, "additional": ["x"]}')
    assert Tokenizer(folder).special_tokens == {"pad_token": "<|end|>"}


def test_a_chat_template_within_the_config(byte_level_tokenizer: Path, tmp_path: Path):
    folder = tmp_path / "tokenizer"
    shutil.copytree(byte_level_tokenizer, folder)
    (folder / "chat_template.jinja").unlink()
    assert Tokenizer(folder).chat_template is None
    (folder / "tokenizer_config.json").write_text('{"chat_template": {}}')
    with pytest.raises(ChatTemplateError, match="chat_template should be text"):
        _ = Tokenizer(folder).chat_template
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d{{ eos_token }}"}]
    for source in ("d{{ eos_token }}", named):
        config = {"chat_template": source, "eos_token": "!"}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        template = Tokenizer(folder).chat_template
        assert template is not None
        assert template.render([{"role": "user", "content": ""}]) == "d!"


def test_limits_saved_with_a_tokenizer_do_not_apply(byte_level_tokenizer: Path, tmp_path: Path):
    from tokenizers import Tokenizer as RustTokenizer

    rust = RustTokenizer.from_file(str(byte_level_tokenizer / "tokenizer.json"))
    rust.enable_truncation(4)
    rust.enable_padding(length=100)
    rust.save(str(tmp_path / "tokenizer.json"))
    text = "the quick brown fox"
    assert Tokenizer(tmp_path).encode(text) == Tokenizer(byte_level_tokenizer).encode(text)


def test_same_tokens_as_transformers(byte_level_tokenizer: Path):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(byte_level_tokenizer / "tokenizer.json"))
    ours = Tokenizer(byte_level_tokenizer)
    for text in ("the fox", "<|start|>日本<|end|> 🙂", "", "  two  spaces\n"):
        assert ours.encode(text) == theirs(text)["input_ids"]
        assert ours.encode(text, add_special_tokens=False) == theirs(text, add_special_tokens=False)["input_ids"]


def test_damaged_files(tmp_path: Path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(EngineError, match=r"tokenizer.json cannot be read"):
        Tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(EngineError, match=r"tokenizer_config.json: not valid JSON"):
        Tokenizer(tmp_path)


def test_a_folder_whose_name_is_not_utf8(byte_level_tokenizer: Path, tmp_path: Path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xe9t\xe9"))
    shutil.copytree(byte_level_tokenizer, folder)
    assert Tokenizer(folder).encode("the fox") == Tokenizer(byte_level_tokenizer).encode("the fox")
    assert Tokenizer(folder).chat_template is not None


def _written(folder: Path, **parts: Any) -> Path:
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model} | parts))
    return folder


def test_a_panic_at_load_is_an_error(tmp_path: Path):
    charsmap = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(b"\xff" * 4).decode()}
    with pytest.raises(EngineError, match=r"tokenizer\.json cannot be read: Precompiled"):
        Tokenizer(_written(tmp_path, normalizer=charsmap))


def test_a_panic_at_encode_is_an_error(tmp_path: Path):
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    tokenizer = Tokenizer(_written(tmp_path, pre_tokenizer=split))
    with pytest.raises(RequestError, match=r"tokenizer fails on the prompt: Onig: .*retry-limit-in-match"):
        tokenizer.encode("a" * 40 + "!")
    assert tokenizer.encode("ab") == [0, 1]


def test_a_vocabulary_without_its_unknown_token(tmp_path: Path):
    model = {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
    tokenizer = Tokenizer(_written(tmp_path, model=model | {"max_input_chars_per_word": 100}))
    with pytest.raises(RequestError, match=r"tokenizer fails on the prompt: .*Missing \[UNK\] token"):
        tokenizer.encode("zz")


def test_the_beginning_of_a_text_is_put_there_once(byte_level_tokenizer: Path, tmp_path: Path):
    from tokenizers import Tokenizer as RustTokenizer
    from tokenizers import processors

    assert Tokenizer(byte_level_tokenizer).beginning == []
    rust = RustTokenizer.from_file(str(byte_level_tokenizer / "tokenizer.json"))
    rust.post_processor = processors.TemplateProcessing(
        single="<|start|> $A <|end|>", special_tokens=[("<|start|>", 1), ("<|end|>", 0)]
    )
    rust.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path)
    plain = tokenizer.encode("the fox", add_special_tokens=False)
    assert tokenizer.beginning == [1]
    assert tokenizer.encode("the fox") == tokenizer.encode("<|start|>the fox") == [1, *plain, 0]
    assert tokenizer.encode("<|start|>the fox", add_special_tokens=False) == [1, *plain]
    assert tokenizer.encode("") == tokenizer.encode("<|start|>") == [1, 0]
    assert tokenizer.encode("the<|start|>") == [1, *tokenizer.encode("the", add_special_tokens=False), 1, 0]


def test_without_a_tokenizer_only_text_is_refused(tmp_path: Path):
    tokenizer = load_tokenizer(tmp_path)
    with pytest.raises(RequestError, match=r"no tokenizer.*token ids"):
        tokenizer.encode("text")
    assert tokenizer.piece(5) == ("", None)
    assert tokenizer.chat_template is None
    assert not tokenizer.special_ids
