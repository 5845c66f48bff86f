"""Sequences to calibrate with: from texts, and from the model itself."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from char_tokenizer import write_char_tokenizer

from enginesmith.builder.checkpoint_tokenizer import tokenizer_of
from enginesmith.builder.quantize import sampling
from enginesmith.builder.quantize.calibration import beginning, calibrate
from enginesmith.builder.quantize.hub_data import _choose
from enginesmith.builder.quantize.quantize_options import QuantizeConfig
from enginesmith.builder.quantize.text_files import read_texts
from enginesmith.checkpoint.checkpoint import Checkpoint, open_checkpoint
from enginesmith.errors import BuildError
from enginesmith.progress import NoProgress


@pytest.fixture
def with_tokenizer(tiny_checkpoint: Callable[[str], Path], tmp_path: Path) -> Checkpoint:
    folder = tmp_path / "llama"
    folder.mkdir()
    for file in tiny_checkpoint("llama").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    write_char_tokenizer(folder)
    return open_checkpoint(folder)


def config(**options: Any) -> QuantizeConfig:
    return QuantizeConfig(**{"method": "awq", "samples": 4, "sequence_length": 16} | options)


def tokens_of(checkpoint: Checkpoint, **options: Any) -> np.ndarray:
    return calibrate(checkpoint, 128, config(**options), NoProgress()).tokens


def test_sequences_are_pieces_of_the_text(with_tokenizer: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("".join(chr(32 + i % 95) for i in range(100)))
    tokens = tokens_of(with_tokenizer, calibration=str(path))
    assert tokens.shape == (4, 16)
    pieces = {tuple(3 + (16 * piece + i) % 95 for i in range(16)) for piece in range(6)}
    assert {tuple(row) for row in tokens.tolist()} <= pieces
    assert len({tuple(row) for row in tokens.tolist()}) == 4
    np.testing.assert_array_equal(tokens, tokens_of(with_tokenizer, calibration=str(path)))
    assert not np.array_equal(tokens, tokens_of(with_tokenizer, calibration=str(path), seed=1))


def test_too_little_text(with_tokenizer: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("a" * 63)
    with pytest.raises(BuildError, match=r"text\.txt has 63 tokens, but 4 sequences of 16 need 64"):
        tokens_of(with_tokenizer, calibration=str(path))


def test_lines_of_json(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text(json.dumps("one") + "\n\n" + json.dumps({"text": "two", "id": 3}) + "\n")
    assert list(read_texts(path)) == ["one", "two"]
    for line, message in (
        ("{", "line 1: not valid JSON"),
        ("[" * 900 + "]" * 900, "line 1: not valid JSON: nested deeper"),
        ("[1]", 'line 1: expected a string or an object with "text"'),
    ):
        path.write_text(line)
        with pytest.raises(BuildError, match=message):
            list(read_texts(path))


def test_text_of_the_python_installation(with_tokenizer: Checkpoint) -> None:
    found = calibrate(with_tokenizer, 128, config(calibration="topics"), NoProgress())
    assert found.source.startswith("pydoc topics")
    assert found.facts()["tokens"] == 64


def test_text_needs_a_tokenizer(tiny_checkpoint: Callable[[str], Path]) -> None:
    with pytest.raises(BuildError, match="has no tokenizer, so text cannot"):
        tokens_of(open_checkpoint(tiny_checkpoint("llama")), calibration="topics")


def beginning_of(checkpoint: Checkpoint) -> list[int]:
    return beginning(checkpoint, tokenizer_of(checkpoint.path), 128)


def test_what_a_sequence_begins_with(with_tokenizer: Checkpoint, tiny_checkpoint: Callable[[str], Path]) -> None:
    assert beginning_of(with_tokenizer) == []
    assert beginning_of(open_checkpoint(tiny_checkpoint("llama"))) == [1]
    path = with_tokenizer.path / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }
    path.write_text(json.dumps(tokenizer))
    assert beginning_of(with_tokenizer) == [1]
    assert (tokens_of(with_tokenizer, calibration="topics")[:, 0] == 1).all()


@pytest.mark.slow
def test_the_model_writes_its_own_text(tiny_checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = open_checkpoint(tiny_checkpoint("llama"))
    options = {"samples": 70, "sequence_length": 12, "seed": 5}  # more than run at once
    monkeypatch.setattr(sampling, "find", lambda *_: None)
    first, again = (tokens_of(checkpoint, **options) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert first.shape == (70, 12)
    assert (first[:, 0] == 1).all()
    assert len({tuple(row) for row in first.tolist()}) == 70
    assert not np.array_equal(first, tokens_of(checkpoint, **options | {"seed": 6}))


def test_the_default_length_is_at_most_what_the_model_takes(with_tokenizer: Checkpoint) -> None:
    options = {"method": "awq", "samples": 2, "calibration": "topics"}
    found = calibrate(with_tokenizer, 128, QuantizeConfig(**options), NoProgress())
    assert found.facts()["sequence_length"] == 128
    with pytest.raises(BuildError, match="sequence_length 256 is more than the 128 tokens"):
        calibrate(with_tokenizer, 128, QuantizeConfig(**options, sequence_length=256), NoProgress())


def test_files_of_a_data_set() -> None:
    assert _choose(["README.md", "data/test.jsonl", "data/train.jsonl", "train.parquet"], "a/b") == "data/train.jsonl"
    with pytest.raises(BuildError, match="no file that can be read"):
        _choose(["README.md"], "a/b")


def test_a_hub_that_cannot_be_reached_is_one_error(
    with_tokenizer: Checkpoint, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    start = time.monotonic()
    with pytest.raises(BuildError, match=r"org/name is no file, and the Hub could not be reached \(.*refused"):
        tokens_of(with_tokenizer, calibration="org/name")
    assert time.monotonic() - start < 10
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["", "folder", "bytes.txt"])
def test_what_is_no_text(with_tokenizer: Checkpoint, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "bytes.txt").write_bytes(b"a\xff")
    said = {
        "": "calibration: '' is no file",
        "folder": "folder: cannot be read: .*; give",
        "bytes.txt": "not UTF-8 .* at byte 1; give",
    }
    with pytest.raises(BuildError, match=said[name]):
        tokens_of(with_tokenizer, calibration=str(tmp_path / name) if name else "")
