"""The tokenizer of a checkpoint, and what an engine keeps of it."""

import contextlib
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from char_tokenizer import write_char_tokenizer
from mutations import mutated_json

from enginesmith.builder.checkpoint_tokenizer import save_engine_tokenizer, tokenizer_of
from enginesmith.errors import CheckpointError, EnginesmithError
from enginesmith.runtime.tokenizer import NoTokenizer, load_tokenizer


def test_a_checkpoint_without_a_tokenizer(tmp_path: Path) -> None:
    assert isinstance(tokenizer_of(tmp_path), NoTokenizer)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError, match="The tokenizer is damaged"):
        tokenizer_of(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer.model").write_bytes(b"no model")
    with pytest.raises(CheckpointError, match="could not be converted"):
        tokenizer_of(tmp_path)


MESSAGES = [{"role": "user", "content": "hi"}]


def test_an_engine_has_every_template_of_its_checkpoint(tmp_path: Path) -> None:
    checkpoint, engine = tmp_path / "checkpoint", tmp_path / "engine"
    checkpoint.mkdir()
    write_char_tokenizer(checkpoint)
    named = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T{{ tools[0].name }}"}]
    (checkpoint / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert save_engine_tokenizer(checkpoint, engine) is None
    template = load_tokenizer(engine).chat_template
    assert template is not None
    assert template.render(MESSAGES) == "D"
    assert template.render(MESSAGES, tools=[{"name": "get"}]) == "Tget"


@pytest.mark.parametrize(
    "template",
    [{}, {"a": {}}, [], [[]], 5, True, [{"template": "x"}], {"default": "{% if %}"}, "{{ 'x' | nothing }}", "{"],
)
def test_a_broken_template_ends_no_build(tmp_path: Path, template: Any) -> None:
    checkpoint, engine = tmp_path / "checkpoint", tmp_path / "engine"
    checkpoint.mkdir()
    write_char_tokenizer(checkpoint)
    (checkpoint / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    ailment = save_engine_tokenizer(checkpoint, engine)
    assert (ailment is None) == (template == "{")  # which is text to Jinja
    assert ailment is None or "chat" in ailment
    assert load_tokenizer(engine).encode("a")


def test_mutated_files_are_read_or_are_our_errors(tmp_path: Path) -> None:
    random = Random(0)
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    write_char_tokenizer(checkpoint)
    names = ("tokenizer.json", "tokenizer_config.json")
    originals = {name: (checkpoint / name).read_bytes() for name in names}
    for _ in range(200):
        for name, original in originals.items():
            (checkpoint / name).write_bytes(mutated_json(random, original))
        with contextlib.suppress(EnginesmithError):
            save_engine_tokenizer(checkpoint, tmp_path / "engine")
            tokenizer = load_tokenizer(tmp_path / "engine")
            for token in tokenizer.encode("a b </s> é"):
                tokenizer.piece(token)
            assert tokenizer.special_ids is not None
