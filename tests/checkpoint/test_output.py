"""Folders that a command may write, and those it refuses before it begins."""

from pathlib import Path

import pytest

from enginesmith.checkpoint.output import check_output
from enginesmith.errors import BuildError


def _check(path: Path) -> Path:
    return check_output(path, "engine.json", "an engine")


def test_nothing_an_empty_folder_or_one_of_its_kind(tmp_path: Path) -> None:
    for name in ("absent", "deep/absent", "empty", "engine"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "engine.json").write_text("")
    (tmp_path / "link").symlink_to("engine")
    (tmp_path / "dangling").symlink_to("absent")
    for name in ("absent", "deep/absent", "empty", "engine"):
        assert _check(tmp_path / name) == tmp_path / name
    assert _check(tmp_path / "link") == tmp_path / "engine"
    assert _check(tmp_path / "dangling") == tmp_path / "absent"


@pytest.mark.parametrize("name", [".", "..", "inner/..", "link"])
def test_the_current_folder_is_not_replaced(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "outer" / "here"
    (here / "inner").mkdir(parents=True)
    (here / "link").symlink_to(here)
    (here / "engine.json").write_text("")
    (here.parent / "engine.json").write_text("")
    monkeypatch.chdir(here)
    with pytest.raises(BuildError, match=f"{name} is the current folder, or holds it.*with {here.parent}"):
        _check(Path(name))


def test_other_things_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("file", "full", "loop"):
        with pytest.raises(BuildError, match=f"{name} exists and is not an engine"):
            _check(tmp_path / name)
    with pytest.raises(BuildError, match="file is not a folder that can be written"):
        _check(tmp_path / "file" / "out")
    with pytest.raises(BuildError, match="File name too long; choose a shorter name"):
        _check(tmp_path / ("x" * 300))
