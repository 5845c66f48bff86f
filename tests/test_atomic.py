"""Files and folders that appear whole or not at all."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from enginesmith.atomic import new_file, new_folder

Atomic = Callable[[Path], AbstractContextManager[Path]]
BOTH = pytest.mark.parametrize("atomic", [new_folder, new_file])


def _write(atomic: Atomic, target: Path, text: str, error: type[BaseException] | None = None) -> None:
    with atomic(target) as work:
        (work / "inside" if work.is_dir() else work).write_text(text)
        if error is not None:
            raise error


def _text(target: Path) -> str:
    return (target / "inside" if target.is_dir() else target).read_text()


@BOTH
def test_it_appears_whole_and_replaces(atomic: Atomic, tmp_path: Path) -> None:
    for text in ("first", "second"):
        _write(atomic, tmp_path / "out", text)
        assert _text(tmp_path / "out") == text
        assert [path.name for path in tmp_path.iterdir()] == ["out"]


@BOTH
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_what_was_there(atomic: Atomic, error: type[BaseException], tmp_path: Path) -> None:
    _write(atomic, tmp_path / "out", "first")
    with pytest.raises(error):
        _write(atomic, tmp_path / "out", "second", error)
    assert _text(tmp_path / "out") == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@BOTH
def test_a_stop_as_soon_as_it_is_made_leaves_nothing(
    atomic: Atomic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(make: Callable[..., Any]) -> Callable[..., Any]:
        def then_stop(path: Path, *arguments: Any, **keywords: Any) -> None:
            make(path, *arguments, **keywords)
            if path.suffix == ".partial":
                assert path.exists()
                raise SystemExit(143)

        return then_stop

    monkeypatch.setattr(Path, "mkdir", stopped(Path.mkdir))
    monkeypatch.setattr(Path, "touch", stopped(Path.touch))
    with pytest.raises(SystemExit), atomic(tmp_path / "out"):
        pass
    assert list(tmp_path.iterdir()) == []
