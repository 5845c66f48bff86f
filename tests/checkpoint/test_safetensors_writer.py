from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from enginesmith.checkpoint.safetensors import read_header
from enginesmith.checkpoint.safetensors_writer import new_safetensors
from enginesmith.checkpoint.tensor_index import TensorReader

F32, BF16 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
LAYOUT = {"a": (F32, (5, 3)), "s": (F32, ()), "b": (F32, (4,)), "empty": (F32, (0, 2))}


def test_any_order_and_by_rows(tmp_path: Path) -> None:
    a, b = np.arange(15, dtype=np.float32).reshape(5, 3), np.arange(4, dtype=np.float32)
    path = tmp_path / "out.safetensors"
    with new_safetensors(path, LAYOUT) as writer:
        writer.write("b", b)
        writer.write("a", a[2:], 2)
        writer.write("s", np.array(7, np.float32))
        assert writer.incomplete == ["a"]
        writer.write("a", a[:2])
    loaded = load_file(path)
    assert loaded.keys() == LAYOUT.keys()
    assert np.array_equal(loaded["a"], a)
    assert np.array_equal(loaded["b"], b)
    assert loaded["s"] == 7
    assert min(info.offset for info in read_header(path).values()) % 64 == 0


def test_casts_to_the_layout(tmp_path: Path) -> None:
    path, values = tmp_path / "out.safetensors", np.array([[1.001], [-3.14159]], np.float32)
    with new_safetensors(path, {"w": (BF16, (2, 1))}) as writer:
        writer.write("w", values)
    assert np.array_equal(TensorReader().read(read_header(path)["w"]), values.astype(BF16))


@pytest.mark.parametrize(
    ("rows", "first"), [(np.ones((5, 2)), 0), (np.ones((3, 3)), 3), (np.ones(15), 0), (np.ones((6, 3)), 0)]
)
def test_rows_must_fit(tmp_path: Path, rows: np.ndarray, first: int) -> None:
    with pytest.raises(ValueError, match=r"a: expected \[5, 3\]"), new_safetensors(tmp_path / "x", LAYOUT) as writer:
        writer.write("a", rows, first)
    assert list(tmp_path.iterdir()) == []


def test_incomplete_files_never_appear(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not written: a, s, b"), new_safetensors(tmp_path / "x", LAYOUT):
        pass
    assert list(tmp_path.iterdir()) == []
