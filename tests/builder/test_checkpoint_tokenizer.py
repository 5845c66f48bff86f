"""The tokenizer of a checkpoint."""

from pathlib import Path

import pytest

from enginesmith.builder.checkpoint_tokenizer import tokenizer_of
from enginesmith.errors import CheckpointError
from enginesmith.runtime.tokenizer import NoTokenizer


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
