import json
from pathlib import Path

import numpy as np
import pytest

from enginesmith.checkpoint.tensor_index import TensorReader, index_tensors
from enginesmith.errors import CheckpointError

TENSORS = {f"t{i}": np.full((2, 3), i, np.float32) for i in range(5)}


def rewrite_index(folder: Path, change: dict[str, object]) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"] |= change
    path.write_text(json.dumps(index))


def test_shards_are_found_through_the_index(make_checkpoint) -> None:
    infos = index_tensors(make_checkpoint(TENSORS, shards=3))
    reader = TensorReader()
    assert len({info.file for info in infos.values()}) == 3
    assert {name: reader.read(info)[0, 0] for name, info in infos.items()} == {f"t{i}": i for i in range(5)}


@pytest.mark.parametrize(
    "name",
    ["../evil.safetensors", "/etc/evil.safetensors", "a/b.safetensors", "..", "a\\b.safetensors", "C:x.safetensors",
     "x.bin", "", "a\0.safetensors", 7, None],
)  # fmt: skip
def test_index_entries_are_plain_names(make_checkpoint, name: object) -> None:
    folder = make_checkpoint(TENSORS, shards=2)
    (folder.parent / "evil.safetensors").write_bytes((folder / "model-00001-of-00002.safetensors").read_bytes())
    rewrite_index(folder, {"t0": name})
    with pytest.raises(CheckpointError, match="in its own folder") as caught:
        index_tensors(folder)
    assert repr(name) in str(caught.value)


def test_a_shard_may_be_a_link_to_a_file(make_checkpoint) -> None:
    """Hub caches are made of links to blobs elsewhere."""
    folder = make_checkpoint(TENSORS, shards=2)
    shard = folder / "model-00001-of-00002.safetensors"
    blob = folder.parent / "blob"
    shard.rename(blob)
    shard.symlink_to(blob)
    assert index_tensors(folder).keys() == TENSORS.keys()


def test_all_missing_shards_are_listed(make_checkpoint) -> None:
    folder = make_checkpoint(TENSORS, shards=3)
    for number in (1, 3):
        (folder / f"model-0000{number}-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"2 of 3 .*00001-of-00003.*00003-of-00003"):
        index_tensors(folder)


def test_a_message_names_the_first_of_many_shards(make_checkpoint) -> None:
    folder = make_checkpoint(TENSORS, shards=2)
    rewrite_index(folder, {f"x{i}": f"{i:06}{'y' * 200}.safetensors" for i in range(200_000)})
    with pytest.raises(CheckpointError, match=r"200000 of 200002 weight files are missing.* and 199990 more") as caught:
        index_tensors(folder)
    assert len(str(caught.value)) < 2000


def test_all_tensors_that_a_shard_lacks_are_listed(make_checkpoint) -> None:
    folder = make_checkpoint(TENSORS, shards=2)
    rewrite_index(folder, {"x": "model-00001-of-00002.safetensors", "y": "model-00002-of-00002.safetensors"})
    with pytest.raises(CheckpointError, match=r"x \(model-00001-of-00002.safetensors\), y "):
        index_tensors(folder)


def test_tensors_outside_the_index_stay_visible(make_checkpoint) -> None:
    folder = make_checkpoint(TENSORS, shards=2)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    del index["weight_map"]["t3"]
    path.write_text(json.dumps(index))
    assert "t3" in index_tensors(folder)


@pytest.mark.parametrize("index", [{}, {"weight_map": {}}, {"weight_map": [1]}, [], "text"])
def test_index_without_a_map(make_checkpoint, index: object) -> None:
    folder = make_checkpoint(TENSORS, shards=1)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"index\.json"):
        index_tensors(folder)


def test_pickles_are_refused(make_checkpoint) -> None:
    folder = make_checkpoint(TENSORS, files={"pytorch_model.bin": "x"})
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"pickled weights \(pytorch_model.bin\)"):
        index_tensors(folder)


def test_no_weights(make_checkpoint) -> None:
    folder = make_checkpoint(TENSORS)
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="no weights"):
        index_tensors(folder)


def test_a_file_that_shrinks_while_open(make_checkpoint) -> None:
    folder = make_checkpoint(TENSORS)
    infos = index_tensors(folder)
    (folder / "model.safetensors").write_bytes(b"short file")
    with pytest.raises(CheckpointError, match="changed while it was open"):
        TensorReader().read(infos["t4"])
