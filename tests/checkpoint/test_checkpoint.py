from pathlib import Path

import numpy as np
import pytest

from enginesmith.checkpoint.checkpoint import open_checkpoint
from enginesmith.errors import CheckpointError

TENSORS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(4, np.float16)}
TOKENIZER = {"added_tokens": [{"id": 11, "content": "<end>"}], "model": {"vocab": {"x": 0, "</s>": 2}}}


def test_open(make_checkpoint) -> None:
    folder = make_checkpoint(TENSORS, config={"hidden_size": 3}, files={"generation_config.json": {"top_k": 5}})
    checkpoint = open_checkpoint(str(folder))
    assert checkpoint.path == folder
    assert checkpoint.config == {"model_type": "llama", "hidden_size": 3}
    assert checkpoint.generation_config == {"top_k": 5}
    assert (checkpoint.num_parameters, checkpoint.nbytes) == (10, 32)
    assert np.array_equal(checkpoint.read("a"), TENSORS["a"])
    assert (checkpoint.tokenizer_files, checkpoint.eos_token_ids) == ([], ())


def test_unknown_tensor(make_checkpoint) -> None:
    with pytest.raises(CheckpointError, match="no tensor named 'z'"):
        open_checkpoint(make_checkpoint(TENSORS)).read("z")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no config.json"),
        ("{", "not valid JSON"),
        ("[1]", "expected a JSON object, found list"),
        ("{}", "no model_type"),
        ("[" * 100_000, "not valid JSON"),
        ('{"model_type": 3}', "no model_type"),
    ],
)
def test_bad_config(make_checkpoint, content: str | None, message: str) -> None:
    folder = make_checkpoint(TENSORS)
    (folder / "config.json").unlink()
    if content is not None:
        (folder / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(folder)


def test_not_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such file"):
        open_checkpoint(tmp_path / "absent")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        open_checkpoint(tmp_path / "notes.txt")


@pytest.mark.parametrize(
    ("config", "generation", "tokenizer", "expected"),
    [
        (2, None, None, (2,)),
        ([2, 7], 7, None, (2, 7)),
        (None, [5, 2], None, (5, 2)),
        (1, 2, "<end>", (1, 2, 11)),
        (2, None, {"content": "</s>"}, (2,)),
        (2, None, {"content": "<end>"}, (2, 11)),
        (2, None, "<unknown>", (2,)),
        (-1, 0, None, (0,)),
        ([], None, None, ()),
    ],
)
def test_eos_ids_are_a_union(make_checkpoint, config, generation, tokenizer, expected) -> None:
    files = {
        "generation_config.json": {"eos_token_id": generation},
        "tokenizer_config.json": {"eos_token": tokenizer},
        "tokenizer.json": TOKENIZER,
    }
    folder = make_checkpoint(TENSORS, config={"eos_token_id": config}, files=files)
    assert open_checkpoint(folder).eos_token_ids == expected


def test_eos_of_a_nested_text_config(make_checkpoint) -> None:
    folder = make_checkpoint(TENSORS, config={"text_config": {"eos_token_id": 9}})
    assert open_checkpoint(folder).eos_token_ids == (9,)


@pytest.mark.parametrize("value", ["2", 2.0, [1, "2"], {"a": 1}, True])
def test_bad_eos_ids(make_checkpoint, value: object) -> None:
    checkpoint = open_checkpoint(make_checkpoint(TENSORS, config={"eos_token_id": value}))
    with pytest.raises(CheckpointError, match="eos_token_id"):
        _ = checkpoint.eos_token_ids
