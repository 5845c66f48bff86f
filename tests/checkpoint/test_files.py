"""Files that cannot be read are said to be so; nothing is called missing or damaged that is not."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from enginesmith.checkpoint.chat_templates import find_chat_templates
from enginesmith.checkpoint.checkpoint import open_checkpoint
from enginesmith.checkpoint.files import exists, expanded
from enginesmith.checkpoint.sources import resolve
from enginesmith.checkpoint.tokenizer_files import save_tokenizer
from enginesmith.errors import ChatTemplateError, CheckpointError

TENSORS = {f"t{i}": np.full((2, 3), i, np.float32) for i in range(4)}
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab\nsize 12345\n"
FILES = ["config.json", "generation_config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors"]


@pytest.mark.parametrize("name", FILES)
def test_a_git_lfs_pointer_is_called_one(make_checkpoint, name: str) -> None:
    folder = make_checkpoint(TENSORS, shards=2)
    (folder / name).write_text(POINTER)
    with pytest.raises(CheckpointError, match=rf"{name}: a Git LFS pointer.*git lfs pull"):
        open_checkpoint(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "tokenizer.model"])
def test_so_it_is_in_place_of_a_tokenizer_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(POINTER)
    if name != "tokenizer.model":
        (tmp_path / "tokenizer.json").write_text(POINTER)
    with pytest.raises(CheckpointError, match="a Git LFS pointer"):
        save_tokenizer(tmp_path, tmp_path / "out")


@pytest.mark.parametrize("name", FILES)
def test_a_want_of_permission_is_called_that(make_checkpoint, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_checkpoint(TENSORS, shards=2)
    (folder / "generation_config.json").write_text("{}")
    plain = Path.open

    def deny(path: Path, *arguments: object, **keywords: object) -> object:
        if path.name == name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return plain(path, *arguments, **keywords)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", deny)
    with pytest.raises(CheckpointError, match=rf"{name}: no permission to read it"):
        open_checkpoint(folder)


def test_a_folder_that_cannot_be_entered_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "stat", deny)
    for open_it in (open_checkpoint, resolve):
        with pytest.raises(CheckpointError, match="no permission to read it"):
            open_it("somewhere")


def test_paths_that_can_be_none() -> None:
    assert not exists(Path("a\0b"))
    assert not exists(Path(__file__) / "inside a file")
    assert expanded("~nobody-of-this-name/x") == Path("~nobody-of-this-name/x")
    with pytest.raises(CheckpointError, match="File name too long") as caught:
        resolve("x" * 5000)
    assert len(str(caught.value)) < 400


def test_and_in_place_of_a_chat_template(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text(POINTER)
    with pytest.raises(ChatTemplateError, match="a Git LFS pointer"):
        find_chat_templates(tmp_path)
