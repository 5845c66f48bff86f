from pathlib import Path

import pytest

from enginesmith.checkpoint.gguf_file import read_gguf
from enginesmith.checkpoint.lfs_pointer import PREFIX_BYTES, is_lfs_pointer
from enginesmith.errors import CheckpointError

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    b"size 12345\n"
)


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (POINTER, True),
        (POINTER[:PREFIX_BYTES], True),
        (POINTER.replace(b"git-lfs.github", b"hawser.github"), True),
        (POINTER[:20], False),
        (b"GGUF\3\0\0\0", False),
        (b"", False),
    ],
)
def test_recognised_by_its_first_bytes(first: bytes, expected: bool) -> None:
    assert is_lfs_pointer(first) is expected


def test_in_place_of_a_gguf_file(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(POINTER)
    with pytest.raises(CheckpointError, match=r"a Git LFS pointer.*git lfs pull"):
        read_gguf(path)
