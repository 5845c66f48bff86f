import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from enginesmith.checkpoint.safetensors import DTYPES, read_header
from enginesmith.checkpoint.tensor_index import TensorReader
from enginesmith.errors import CheckpointError


def raw(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(begin: int, end: int, dtype: str = "F32", shape: list | None = None) -> dict:
    shape = [(end - begin) // 4] if shape is None else shape
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_reads_what_the_library_writes(tmp_path: Path) -> None:
    tensors = {
        "a": np.arange(15, dtype=np.float32).reshape(3, 5),
        "b": np.arange(7, dtype=np.float16),
        "scalar": np.array(3, np.int64),
        "empty": np.empty((0, 4), np.float32),
        "flags": np.array([True, False, True]),
        "c": np.arange(6, dtype=np.float32).astype(ml_dtypes.bfloat16).reshape(2, 3),
    }
    path = tmp_path / "x.safetensors"
    path.write_bytes(save(tensors, {"format": "pt"}))
    infos, reader = read_header(path), TensorReader()
    assert infos.keys() == tensors.keys()
    for name, expected in tensors.items():
        found = reader.read(infos[name])
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert np.array_equal(found, expected)
        assert not found.flags.writeable


def test_views_share_one_mapping(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(save({"a": np.ones(4, np.float32), "b": np.ones(4, np.float32)}))
    infos, reader = read_header(path), TensorReader()
    first, second = (reader.read(infos[name]) for name in "ab")
    begin = first.__array_interface__["data"][0]
    assert second.__array_interface__["data"][0] - begin == infos["b"].offset - infos["a"].offset


def test_truncated_file_is_named_with_both_sizes(tmp_path: Path) -> None:
    content = save({"a": np.ones(100, np.float32)})
    path = tmp_path / "cut.safetensors"
    path.write_bytes(content[:-10])
    with pytest.raises(CheckpointError, match=f"cut.safetensors.*expected {len(content)}.*found {len(content) - 10}"):
        read_header(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "0 bytes long"),
        (b"abc", "3 bytes long"),
        (raw(b"", length=1 << 62), "limit is 100000000"),
        (raw(b"{}", length=50), "cut short: expected at least 58 bytes, found 10"),
        (raw(b"not json"), "not valid JSON"),
        (raw(b"\xff\xfe\xfd"), "not valid JSON"),
        (raw(b"[" * 100_000), "not valid JSON"),
        (raw([1, 2]), "JSON object, found list"),
        (raw(b'{"a": 1, "a": 2}'), "appears twice"),
        (raw({"a": 5}), "'a' lacks one of"),
        (raw({"a": {"dtype": "F32", "shape": [1]}}), "'a' lacks one of"),
        (raw({"a": entry(0, 4, "F33")}, bytes(4)), "dtype 'F33'"),
        (raw({"a": entry(0, 4, shape=[-1])}, bytes(4)), r"shape \[-1\]"),
        (raw({"a": entry(0, 4, shape=[True])}, bytes(4)), r"shape \[True\]"),
        (raw({"a": entry(0, 4, shape=[1.0])}, bytes(4)), r"shape \[1.0\]"),
        (raw({"a": entry(0, 4, shape=[1] * 33)}, bytes(4)), "at most 32"),
        (raw({"a": entry(0, 0, shape=[0, 1 << 62])}), "past the limit"),
        (raw({"a": entry(4, 0, shape=[1])}), r"data_offsets \[4, 0\]"),
        (raw({"a": {**entry(0, 4), "data_offsets": [0, 4, 8]}}, bytes(4)), "data_offsets"),
        (raw({"a": entry(0, 8, shape=[1])}, bytes(8)), "takes 4 bytes, its offsets 8"),
        (raw({"a": entry(0, 4), "b": entry(8, 12)}, bytes(12)), "'b' leaves a gap"),
        (raw({"a": entry(0, 8), "b": entry(4, 12)}, bytes(12)), "'b' overlaps"),
        (raw({"a": entry(0, 4), "b": entry(0, 4)}, bytes(4)), "overlaps"),
        (raw({"a": entry(0, 400)}, bytes(4)), "cut short"),
        (raw({"a": entry(0, 4)}, bytes(5)), "too long"),
    ],
)
def test_damaged_headers(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_header(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe.safetensors")
    with pytest.raises(CheckpointError, match="not a regular file"):
        read_header(tmp_path / "pipe.safetensors")


VALID = save({"aa": np.arange(6, dtype=np.float32), "b": np.ones((2, 3), np.float16)}, {"format": "pt"})
JUNK = st.one_of(st.integers(-3, 1 << 70), st.floats(), st.text(max_size=3), st.none(), st.booleans())
SIZES = st.one_of(JUNK, st.lists(st.one_of(st.integers(0, 12), JUNK), max_size=3))
ENTRIES = st.one_of(
    JUNK,
    st.fixed_dictionaries(
        {"dtype": st.one_of(st.sampled_from([*DTYPES]), JUNK), "shape": SIZES},
        optional={"data_offsets": st.one_of(st.tuples(st.integers(0, 24), st.integers(0, 24)), SIZES)},
    ),
)


def only_safe_tensors(path: Path, content: bytes) -> None:
    """Reading `content` either raises CheckpointError, or gives tensors that lie within the file, apart."""
    path.write_bytes(content)
    try:
        infos = read_header(path)
    except CheckpointError:
        return
    end = None
    reader = TensorReader()
    for info in sorted(infos.values(), key=lambda info: (info.offset, info.nbytes)):
        assert 8 <= info.offset <= info.offset + info.nbytes <= len(content)
        assert end is None or info.offset == end
        end = info.offset + info.nbytes
        array = reader.read(info)
        assert array.shape == info.shape
        assert array.tobytes() == content[info.offset : end]


@given(content=st.binary(max_size=200))
def test_random_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    only_safe_tensors(tmp_path_factory.getbasetemp() / "random.safetensors", content)


@settings(max_examples=300)
@given(data=st.data())
def test_mutated_files(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = bytearray(VALID)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        piece = data.draw(st.one_of(st.binary(max_size=3), st.sampled_from([b"0", b"9", b"99", b"]", b"1e9", b"-"])))
        content[at : at + data.draw(st.integers(0, 3))] = piece
        content = content or bytearray(VALID)
    cut = data.draw(st.integers(0, len(content)))
    only_safe_tensors(tmp_path_factory.getbasetemp() / "mutated.safetensors", bytes(content[: cut or None]))


@settings(max_examples=300)
@given(header=st.dictionaries(st.text(max_size=2), ENTRIES, max_size=3), size=st.integers(0, 24))
def test_well_formed_nonsense(tmp_path_factory: pytest.TempPathFactory, header: dict, size: int) -> None:
    only_safe_tensors(tmp_path_factory.getbasetemp() / "nonsense.safetensors", raw(header, bytes(range(size))))
