"""Models in several parts, as llama.cpp's gguf-split leaves them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter

from enginesmith.checkpoint.gguf_split import base_name, read_gguf_model
from enginesmith.errors import CheckpointError

COUNT = 3


def write_part(path: Path, metadata: dict[str, int], tensors: list[str]) -> None:
    writer = GGUFWriter(path, "llama")
    for key, value in metadata.items():
        (writer.add_int32 if key == "split.tensors.count" else writer.add_uint16)(key, value)
    for name in tensors:
        writer.add_tensor(name, np.full(4, int(name[1:]), np.float32))
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()


def paths(folder: Path) -> list[Path]:
    return [folder / f"my-model-{part:05}-of-{COUNT:05}.gguf" for part in range(1, COUNT + 1)]


@pytest.fixture
def parts(tmp_path: Path) -> Callable[..., Path]:
    """Writes all parts; `change` maps a part to what its metadata have otherwise. Returns the first."""

    def write(change: dict[int, dict[str, int]] | None = None) -> Path:
        for number, path in enumerate(paths(tmp_path)):
            metadata = {"split.no": number, "split.count": COUNT, "split.tensors.count": 2 * COUNT}
            write_part(path, metadata | (change or {}).get(number, {}), [f"t{2 * number}", f"t{2 * number + 1}"])
        return paths(tmp_path)[0]

    return write


def test_all_parts_are_read(parts: Callable[..., Path]) -> None:
    source, files = read_gguf_model(parts())
    assert files == paths(files[0].parent)
    assert [tensor.name for tensor in source.tensors] == [f"t{index}" for index in range(2 * COUNT)]
    assert all(np.all(tensor.dequantize() == index) for index, tensor in enumerate(source.tensors))
    assert base_name(files[0]) == "my-model"


def test_a_model_of_one_part(tmp_path: Path) -> None:
    write_part(tmp_path / "m.gguf", {"split.count": 1, "split.no": 0}, ["t1"])
    source, files = read_gguf_model(tmp_path / "m.gguf")
    assert (len(source.tensors), len(files), base_name(files[0])) == (1, 1, "m")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({1: {"split.no": 2}}, r"00002-of-00003\.gguf: split\.no is 2, should be 1 in part 2 of 3"),
        ({2: {"split.count": 4}}, r"00003-of-00003\.gguf: split\.count is 4, should be 3"),
        ({0: {"split.tensors.count": 7}}, r"split\.tensors\.count is 7, its 3 parts have 6 tensors"),
        ({0: {"split.count": 5}}, r"one of 5 parts of a model \(split\.count\), and not named as one"),
    ],
)
def test_parts_that_do_not_agree(change: dict[int, Any], message: str, parts: Callable[..., Path]) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_gguf_model(parts(change))


def test_a_later_part_names_the_first(parts: Callable[..., Path]) -> None:
    first = parts()
    with pytest.raises(CheckpointError, match=r"part 2 of 3 of a model\. Give the first, .*-00001-of-00003\.gguf"):
        read_gguf_model(paths(first.parent)[1])


def test_missing_parts_are_named(parts: Callable[..., Path]) -> None:
    first = parts()
    paths(first.parent)[2].unlink()
    with pytest.raises(CheckpointError, match=r"of which 1 are not beside it: my-model-00003-of-00003\.gguf\."):
        read_gguf_model(first)


def test_a_part_of_another_name(parts: Callable[..., Path]) -> None:
    first = parts()
    with pytest.raises(CheckpointError, match="not named as one, NAME-00001-of-00003"):
        read_gguf_model(first.rename(first.with_name("renamed.gguf")))


def test_the_same_part_twice(parts: Callable[..., Path]) -> None:
    first = parts()
    write_part(paths(first.parent)[1], {"split.no": 1, "split.count": COUNT}, ["t0", "t1"])
    with pytest.raises(CheckpointError, match="2 tensors are in more than one of the parts"):
        read_gguf_model(first)
