"""The tokenizer's own additions: special tokens, single tokens, damaged files."""

import json
import shutil
from pathlib import Path

import pytest

from enginesmith.errors import EngineError, RequestError
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
    with pytest.raises(EngineError, match=r"tokenizer_config.json cannot be read"):
        Tokenizer(tmp_path)


def test_without_a_tokenizer_only_text_is_refused(tmp_path: Path):
    tokenizer = load_tokenizer(tmp_path)
    with pytest.raises(RequestError, match=r"no tokenizer.*token ids"):
        tokenizer.encode("text")
    assert tokenizer.piece(5) == ("", None)
    assert tokenizer.chat_template is None
    assert not tokenizer.special_ids
