"""The folder of a quantized checkpoint: resumed after failures, and never half there."""

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from enginesmith.checkpoint.checkpoint import Checkpoint, open_checkpoint
from enginesmith.checkpoint.folder import REPORT, CheckpointFolder
from enginesmith.checkpoint.tensor_index import TensorReader
from enginesmith.errors import BuildError

CONFIG = {"quant_method": "gptq"}
SHARDS = {
    "layer.2": {"c.weight": np.arange(6, dtype=np.float32).reshape(2, 3)},
    "layer.10": {"d.weight": np.ones((4, 2), np.float16), "d.number": np.array(3, np.int64)},
    "rest": {"norm.weight": np.full(5, 0.5, np.float32)},
}
ALL = {name: tensor for shard in SHARDS.values() for name, tensor in shard.items()}


@pytest.fixture
def source(tmp_path: Path) -> Checkpoint:
    folder = tmp_path / "source"
    folder.mkdir()
    save_file({"a": np.ones(3, np.float32)}, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text('{"model_type": "llama", "hidden_size": 3}')
    for name in ("tokenizer.json", "tokenizer.model", "generation_config.json", "chat_template.jinja", "merges.txt"):
        (folder / name).write_text(f"{{}}{name}" if name.endswith(("jinja", "txt", "model")) else "{}")
    (folder / "modeling.py").write_text("raise SystemExit")
    return open_checkpoint(folder)


def fill(output: Path, source: Checkpoint, **options: int) -> None:
    with CheckpointFolder(output, source, "one", **options) as folder:
        for key, tensors in SHARDS.items():
            folder.write(key, tensors)
        folder.finish(CONFIG, {REPORT: "{}"})


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def assert_holds(output: Path, tensors: Mapping[str, np.ndarray]) -> None:
    checkpoint = open_checkpoint(output)
    assert checkpoint.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        found = checkpoint.read(name)
        assert found.dtype == tensor.dtype
        np.testing.assert_array_equal(found, tensor)


def test_a_whole_checkpoint(tmp_path: Path, source: Checkpoint) -> None:
    output = tmp_path / "out"
    fill(output, source)
    assert_holds(output, ALL)
    assert files(output) == {
        *("model.safetensors", "config.json", REPORT),
        *("tokenizer.json", "tokenizer.model", "generation_config.json", "chat_template.jinja", "merges.txt"),
    }
    config = json.loads((output / "config.json").read_text())
    assert config == {"model_type": "llama", "hidden_size": 3, "quantization_config": CONFIG}
    assert (output / "merges.txt").read_text() == "{}merges.txt"
    assert files(tmp_path) == {"source", "out"}


def test_several_files_and_their_index(tmp_path: Path, source: Checkpoint) -> None:
    output = tmp_path / "out"
    fill(output, source, file_bytes=30)
    assert_holds(output, ALL)
    index = json.loads((output / "model.safetensors.index.json").read_text())
    assert index["weight_map"] == {
        "c.weight": "model-00001-of-00003.safetensors",
        "d.weight": "model-00002-of-00003.safetensors",
        "d.number": "model-00002-of-00003.safetensors",
        "norm.weight": "model-00003-of-00003.safetensors",
    }
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in ALL.values())


def test_shards_are_found_again_unless_something_changed(tmp_path: Path, source: Checkpoint) -> None:
    output = tmp_path / "out"
    with CheckpointFolder(output, source, "one") as folder:
        folder.write("layer.2", SHARDS["layer.2"])
        folder.write("layer.10", SHARDS["layer.10"])
    assert not output.exists()
    work = tmp_path / ".out.quantize"
    (work / ".layer.3.safetensors.x.partial").write_bytes(b"half")
    cut = (work / "layer.10.safetensors").read_bytes()[:-1]
    (work / "layer.10.safetensors").write_bytes(cut)
    with CheckpointFolder(output, source, "one") as folder:
        assert folder.shards == {"layer.2"}
        np.testing.assert_array_equal(
            TensorReader().read(folder.infos("layer.2")["c.weight"]), SHARDS["layer.2"]["c.weight"]
        )
    assert not list(work.glob("*.partial"))
    with CheckpointFolder(output, source, "two") as folder:
        assert folder.shards == set()


def test_nothing_is_left_of_a_run_without_a_shard(tmp_path: Path, source: Checkpoint) -> None:
    with pytest.raises(ZeroDivisionError), CheckpointFolder(tmp_path / "out", source, "one"):
        raise ZeroDivisionError
    assert files(tmp_path) == {"source"}


def test_only_one_process_at_a_time(tmp_path: Path, source: Checkpoint) -> None:
    with CheckpointFolder(tmp_path / "out", source, "one") as folder:
        folder.write("rest", SHARDS["rest"])
        with pytest.raises(BuildError, match="another process is writing it"):
            CheckpointFolder(tmp_path / "out", source, "two")
        assert folder.shards == {"rest"}


def test_what_may_be_replaced(tmp_path: Path, source: Checkpoint) -> None:
    output = tmp_path / "out"
    output.mkdir()
    fill(output, source)
    (output / "stale").write_text("")
    fill(output, source)  # a checkpoint quantized before
    assert "stale" not in files(output)


def test_what_may_not_be_replaced(tmp_path: Path, source: Checkpoint) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_text("mine")
    for name in ("file", "folder"):
        with pytest.raises(BuildError, match="is not a checkpoint that enginesmith quantized"):
            CheckpointFolder(tmp_path / name, source, "one")
    with pytest.raises(BuildError, match="is the checkpoint to quantize"):
        CheckpointFolder(source.path, source, "one")
    with pytest.raises(BuildError, match="holds the checkpoint to quantize"):
        CheckpointFolder(source.path.parent, source, "one")
    with pytest.raises(BuildError, match="not a folder that can be written"):
        CheckpointFolder(tmp_path / "file" / "out", source, "one")
    assert (tmp_path / "folder" / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("link", [False, True])
def test_a_folder_in_the_way_is_left_alone(tmp_path: Path, source: Checkpoint, link: bool) -> None:
    mine = tmp_path / ("mine" if link else ".out.quantize")
    mine.mkdir()
    (mine / "thesis.txt").write_text("mine")
    if link:
        (tmp_path / ".out.quantize").symlink_to(mine)
    with pytest.raises(BuildError, match="is in the way"):
        CheckpointFolder(tmp_path / "out", source, "one")
    assert files(mine) == {"thesis.txt"}


def test_a_link_stays_and_what_it_names_is_replaced(tmp_path: Path, source: Checkpoint) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "real").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk" / "real")
    fill(tmp_path / "out", source)
    assert (tmp_path / "out").is_symlink()
    assert_holds(tmp_path / "disk" / "real", ALL)


def test_a_full_disk(tmp_path: Path, source: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "out"
    fill(output, source)
    before = files(output)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with CheckpointFolder(output, source, "two") as folder:
        for key, tensors in SHARDS.items():
            folder.write(key, tensors)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            with pytest.raises(BuildError, match=r"out could not be written: No space left on device; free some"):
                folder.write("more", {"e": np.ones(2)})
            with pytest.raises(BuildError, match="could not be written"):
                folder.finish({"quant_method": "awq"}, {REPORT: "{}"})
    assert files(output) == before
    assert_holds(output, ALL)
    assert files(tmp_path) == {"source", "out", ".out.quantize"}
    with CheckpointFolder(output, source, "two") as folder:
        assert folder.shards == set(SHARDS)
        folder.finish({"quant_method": "awq"}, {REPORT: "{}"})
    assert open_checkpoint(output).config["quantization_config"] == {"quant_method": "awq"}


def test_shards_that_contradict_each_other(tmp_path: Path, source: Checkpoint) -> None:
    with CheckpointFolder(tmp_path / "out", source, "one") as folder:
        folder.write("one", SHARDS["rest"])
        folder.write("two", SHARDS["rest"])
        with pytest.raises(ValueError, match=r"two shards have the tensor norm\.weight"):
            folder.finish(CONFIG)
        with pytest.raises(ValueError, match="plain file name"):
            folder.write("../three", SHARDS["rest"])
    assert not (tmp_path / "out").exists()
