"""The cache's folder: where it is, who may write to it, and things in it that were damaged."""

import errno
import os
from pathlib import Path

import pytest

from enginesmith import integrity, kept
from enginesmith.cache import cache_dir
from enginesmith.errors import CacheError
from enginesmith.kept import find, keep

DATA = {"small": b"abc", "folder/large": bytes(kept._LARGE + 1)}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "cache"
    monkeypatch.setenv("ENGINESMITH_CACHE", str(root))
    return root


def _fill(folder: Path) -> None:
    for name, data in DATA.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277])
def test_all_is_private_whatever_the_umask(root: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        keep("things", "one", _fill)
    finally:
        os.umask(before)
    for path in [root, *root.rglob("*")]:
        assert path.stat().st_mode & 0o777 & ~(0o700 if path.is_dir() else 0o600) == 0, path
    assert root.stat().st_mode & 0o777 == 0o700


def test_a_thing_is_found_again(root: Path) -> None:
    assert find("things", "one") is None
    folder = keep("things", "one", _fill)
    assert find("things", "one") == folder == root / "things" / "one"
    assert {name: (folder / name).read_bytes() for name in DATA} == DATA


@pytest.mark.parametrize("name", [*DATA, ".sha256"])
@pytest.mark.parametrize("how", ["flipped", "cut", "emptied", "removed"])
def test_what_is_damaged_is_made_again(root: Path, name: str, how: str) -> None:
    path = keep("things", "one", _fill) / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if how == "removed":
        path.unlink()
    else:
        path.write_bytes({"flipped": data, "cut": data[:-1], "emptied": b""}[how])
    assert find("things", "one") is None
    keep("things", "one", _fill)
    assert find("things", "one") is not None


def test_digests_without_an_end_are_damage(root: Path) -> None:
    digests = keep("things", "one", _fill) / ".sha256"
    digests.unlink()
    digests.symlink_to("/dev/zero")
    assert find("things", "one") is None


def test_a_file_too_many_is_damage(root: Path) -> None:
    (keep("things", "one", _fill) / "more").write_text("")
    assert find("things", "one") is None


def test_large_files_are_read_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep("things", "one", _fill)
    read: list[str] = []
    plain = integrity.sha256
    monkeypatch.setattr(integrity, "sha256", lambda path: (read.append(path.name), plain(path))[1])
    assert find("things", "one") is not None
    assert read == ["small"]


def test_what_a_dead_process_left_is_removed(root: Path) -> None:
    (cache_dir("things") / ".other.0123456789ab.partial").mkdir()
    assert find("things", "one") is None
    assert list((root / "things").iterdir()) == []


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o722])
@pytest.mark.parametrize("place", [".", "objects"])
def test_a_cache_that_others_can_write_is_refused(root: Path, mode: int, place: str) -> None:
    cache_dir("objects")
    (root / place).chmod(mode)
    with pytest.raises(CacheError, match=rf"written by others \(mode {mode:o}\).*ENGINESMITH_CACHE"):
        cache_dir("objects")


def test_a_cache_of_somebody_else_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache_dir("objects")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(CacheError, match=rf"{root} belongs to another user.*ENGINESMITH_CACHE"):
        cache_dir("objects")


def test_a_cache_that_cannot_be_made_is_called_one(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for place, reason in ((tmp_path / "file" / "x", "Not a directory"), (tmp_path / ("x" * 300), "File name too long")):
        monkeypatch.setenv("ENGINESMITH_CACHE", str(place))
        with pytest.raises(CacheError, match=rf"the cache .* cannot be made: {reason}; .*ENGINESMITH_CACHE"):
            cache_dir("objects")


def test_a_full_disk_blames_the_cache(root: Path) -> None:
    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/some/source")

    with pytest.raises(CacheError, match=rf"the cache {root}/things could not be written: No space left .*free some"):
        keep("things", "one", full)
    assert list((root / "things").iterdir()) == []
