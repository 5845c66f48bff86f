"""The chat templates of a folder: those that Transformers finds in it, or one error that says what is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from enginesmith.checkpoint.chat_templates import find_chat_templates, save_chat_templates
from enginesmith.errors import ChatTemplateError

NAMED = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
BOTH = {"default": "D", "tool_use": "T"}


def _write(folder: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, {}),
        ({"tokenizer_config.json": {"chat_template": None}}, {}),
        ({"tokenizer_config.json": {"chat_template": "C"}}, {"default": "C"}),
        ({"tokenizer_config.json": {"chat_template": NAMED}}, BOTH),
        ({"tokenizer_config.json": {"chat_template": BOTH}}, BOTH),
        ({"tokenizer_config.json": {"chat_template": NAMED[:1]}}, {"tool_use": "T"}),
        ({"chat_template.jinja": "X", "tokenizer_config.json": {"chat_template": NAMED}}, {"default": "X"}),
        (
            {"chat_template.jinja": "X", "additional_chat_templates/tool_use.jinja": "Y"},
            {"default": "X", "tool_use": "Y"},
        ),
        (
            {"additional_chat_templates/a.b.jinja": "Y", "tokenizer_config.json": {"chat_template": "C"}},
            {"a.b": "Y"},
        ),
    ],
    ids=range(9),
)
def test_as_transformers_finds_them(tmp_path: Path, files: dict[str, Any], expected: dict[str, str]) -> None:
    transformers = pytest.importorskip("transformers")
    folder = _write(tmp_path, files)
    assert find_chat_templates(folder) == expected
    Tokenizer(models.BPE()).save(str(folder / "tokenizer.json"))
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(str(folder)).chat_template
    assert expected == ({"default": theirs} if isinstance(theirs, str) else theirs or {})


def test_the_older_file_of_processors(tmp_path: Path) -> None:
    files = {"tokenizer_config.json": {"chat_template": "C"}, "chat_template.json": {"chat_template": "J"}}
    assert find_chat_templates(_write(tmp_path, files)) == {"default": "J"}


def test_what_is_saved_is_found(tmp_path: Path) -> None:
    templates = {"default": "{{ 1 }}\n é", "tool_use": "", "a.b": "x"}
    save_chat_templates(templates, tmp_path)
    assert find_chat_templates(tmp_path) == templates


@pytest.mark.parametrize(
    "value",
    [
        *({}, [], 5, True, {"a": {}}, {"default": None}, [[]], ["x"], [{"template": "x"}], [{"name": "x"}], [{}]),
        *({"../x": "t"}, {"a/b": "t"}, {".x": "t"}, {"": "t"}, {"n" * 99: "t"}, [{"name": {}, "template": "t"}]),
        *("\ud800", "x" * (2 << 20), {"default": {"default": "x"}}, [{"name": "a", "template": ["x"]}]),
    ],
    ids=range(21),
)
def test_what_is_no_template(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ChatTemplateError, match=r"tokenizer_config\.json: (chat.template|not valid JSON)"):
        find_chat_templates(_write(tmp_path, {"tokenizer_config.json": {"chat_template": value}}))


@settings(max_examples=60)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(st.sampled_from(["name", "template", "default", "x"]), inner, max_size=3)
        ),
        max_leaves=6,
    )
)
def test_any_value_is_templates_or_our_error(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    folder = _write(tmp_path_factory.mktemp("any"), {"tokenizer_config.json": {"chat_template": value}})
    try:
        templates = find_chat_templates(folder)
    except ChatTemplateError:
        return
    assert all(isinstance(part, str) for item in templates.items() for part in item)
    save_chat_templates(templates, folder)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "chat_template.jinja"
    path.write_bytes(b"ab\xff\xff")
    with pytest.raises(ChatTemplateError, match="not text in UTF-8: invalid start byte at byte 2"):
        find_chat_templates(tmp_path)
    path.write_bytes(b" " * (2 << 20))
    with pytest.raises(ChatTemplateError, match=r"2\.1 MB long; the limit is 1\.0 MB"):
        find_chat_templates(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ChatTemplateError, match="not a regular file"):
        find_chat_templates(tmp_path)
    path.rmdir()
    (tmp_path / "tokenizer_config.json").write_text("[" * 100_000)
    with pytest.raises(ChatTemplateError, match=r"tokenizer_config\.json: not valid JSON"):
        find_chat_templates(tmp_path)
