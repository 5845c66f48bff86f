from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from enginesmith.checkpoint.tokenizer_files import copy_tokenizer, save_tokenizer, token_id, tokenizer_files
from enginesmith.errors import CheckpointError

TENSORS = {"a": np.ones(1, np.float32)}


@pytest.mark.parametrize(
    ("model", "token", "expected"),
    [
        ({"vocab": {"a": 0, "b": 5}}, "b", 5),
        ({"vocab": [["<unk>", 0.0], ["b", -1.5]]}, "b", 1),
        ({"vocab": {"a": 0}}, "b", None),
        ({}, "b", None),
        (None, "b", None),
        ({"vocab": {"<e>": 3}}, "<e>", 9),
    ],
)
def test_token_id(make_checkpoint, model: object, token: str, expected: int | None) -> None:
    tokenizer = {"added_tokens": [{"id": 9, "content": "<e>"}, "junk"], "model": model}
    assert token_id(make_checkpoint(TENSORS, files={"tokenizer.json": tokenizer}), token) == expected


def test_save_copies_what_an_engine_needs(make_checkpoint, tmp_path: Path) -> None:
    files = {"tokenizer.json": "{}", "tokenizer_config.json": {"chat_template": "C"}, "vocab.json": "{}", "x.py": "1"}
    saved = save_tokenizer(make_checkpoint(TENSORS, files=files), tmp_path / "out")
    assert [path.name for path in saved] == ["tokenizer.json", "tokenizer_config.json"]
    assert saved == tokenizer_files(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(path.name for path in saved)


def test_a_copy_has_every_template(make_checkpoint, tmp_path: Path) -> None:
    folder = make_checkpoint(TENSORS, files={"tokenizer.json": "{}", "chat_template.jinja": "D"})
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("T")
    copy_tokenizer(folder, tmp_path)
    names = ["tokenizer.json", "chat_template.jinja", "additional_chat_templates/tool_use.jinja"]
    assert tokenizer_files(tmp_path) == [tmp_path / name for name in names]


def test_no_tokenizer(make_checkpoint, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no tokenizer: neither tokenizer\.json"):
        save_tokenizer(make_checkpoint(TENSORS), tmp_path / "out")


@pytest.mark.slow
def test_slow_tokenizers_are_converted(make_checkpoint, tmp_path: Path) -> None:
    """GPT-2's two files, vocab.json and merges.txt, become one tokenizer.json."""
    vocab = {char: index for index, char in enumerate("helo ")} | {"he": 5, "ll": 6, "<|endoftext|>": 7}
    files = {
        "vocab.json": vocab,
        "merges.txt": "#version: 0.2\nh e\nl l\n",
        "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer"},
    }
    folder = make_checkpoint(TENSORS, config={"model_type": "gpt2"}, files=files)
    saved = save_tokenizer(folder, tmp_path / "out")
    assert saved[0].name == "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(saved[0]))
    assert isinstance(tokenizer.model, models.BPE)
    assert tokenizer.encode("hello", add_special_tokens=False).ids == [5, 6, 3]
