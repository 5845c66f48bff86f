"""Files and folders that appear whole or not at all."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from enginesmith import exchange
from enginesmith.atomic import clear_abandoned, discard, new_file, new_folder, temporary_folder

Atomic = Callable[[Path], AbstractContextManager[Path]]
BOTH = pytest.mark.parametrize("atomic", [new_folder, new_file])

# Writes ten files of one number into the folder that it is given, again and again.
WRITER = """
import sys
from pathlib import Path
from enginesmith.atomic import new_folder
for number in range(int(sys.argv[2])):
    with new_folder(Path(sys.argv[1])) as folder:
        for name in range(10):
            (folder / str(name)).write_text(f"{sys.argv[3]} {number}")
"""
# Begins to write, says so, and waits.
WAITER = """
import sys, time
from pathlib import Path
from enginesmith import atomic
from enginesmith.cli import stop_signals
stop_signals.install()
with getattr(atomic, sys.argv[2])(Path(sys.argv[1])) as work:
    if work.is_dir():
        for name in range(2000):
            (work / str(name)).write_text("half")
    print("ready", flush=True)
    time.sleep(60)
"""


def _write(atomic: Atomic, target: Path, text: str, error: type[BaseException] | None = None) -> None:
    with atomic(target) as work:
        (work / "inside" if work.is_dir() else work).write_text(text)
        if error is not None:
            raise error


def _text(target: Path) -> str:
    return (target / "inside" if target.is_dir() else target).read_text()


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _waiting(target: Path, atomic: Atomic) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WAITER, str(target), atomic.__name__]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@BOTH
def test_it_appears_whole_and_replaces(atomic: Atomic, tmp_path: Path) -> None:
    for text in ("first", "second"):
        _write(atomic, tmp_path / "out", text)
        assert _text(tmp_path / "out") == text
        assert _names(tmp_path) == ["out"]


@BOTH
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_what_was_there(atomic: Atomic, error: type[BaseException], tmp_path: Path) -> None:
    _write(atomic, tmp_path / "out", "first")
    with pytest.raises(error):
        _write(atomic, tmp_path / "out", "second", error)
    assert _text(tmp_path / "out") == "first"
    assert _names(tmp_path) == ["out"]


@BOTH
def test_a_stop_as_soon_as_it_is_made_leaves_nothing(
    atomic: Atomic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Path.mkdir

    def then_stop(path: Path, *arguments: Any, **keywords: Any) -> None:
        make(path, *arguments, **keywords)
        if path.suffix == ".partial":
            assert path.exists()
            raise SystemExit(143)

    monkeypatch.setattr(Path, "mkdir", then_stop)
    with pytest.raises(SystemExit), atomic(tmp_path / "out"):
        pass
    assert _names(tmp_path) == []


@BOTH
def test_what_a_link_leads_to_is_replaced(atomic: Atomic, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    _write(atomic, tmp_path / "disk" / "real", "first")
    (tmp_path / "out").symlink_to(Path("disk") / "real")
    (tmp_path / "dangling").symlink_to(Path("disk") / "new")
    for name, real in (("out", "real"), ("dangling", "new")):
        _write(atomic, tmp_path / name, "second")
        assert (tmp_path / name).is_symlink()
        assert _text(tmp_path / "disk" / real) == "second"
    assert _names(tmp_path / "disk") == ["new", "real"]
    assert _names(tmp_path) == ["dangling", "disk", "out"]


@BOTH
def test_a_link_to_itself_is_refused(atomic: Atomic, tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("out")
    with pytest.raises(OSError, match="symbolic links"):
        _write(atomic, tmp_path / "out", "x")
    assert _names(tmp_path) == ["out"]


def test_a_name_as_long_as_the_filesystem_allows(tmp_path: Path) -> None:
    for _ in range(2):
        _write(new_folder, tmp_path / ("é" * 127), "x")
    assert _names(tmp_path) == ["é" * 127]


@BOTH
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGTERM])
def test_what_the_dead_left_is_cleared_and_what_the_living_write_is_not(
    atomic: Atomic, number: signal.Signals, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    _write(atomic, target, "old")
    dead, living = _waiting(target, atomic), _waiting(target, atomic)
    assert len(_names(tmp_path)) == 3
    dead.send_signal(number)
    dead.wait(30)
    assert len(_names(tmp_path)) == (3 if number is signal.SIGKILL else 2)
    assert _text(target) == "old"
    _write(atomic, target, "new")
    assert len(_names(tmp_path)) == 2
    living.terminate()
    assert living.wait(30) == 143
    assert _text(target) == "new"
    assert _names(tmp_path) == ["out"]


def test_a_second_interrupt_does_not_stop_the_cleaning(tmp_path: Path) -> None:
    process = _waiting(tmp_path / "out", new_folder)
    process.send_signal(signal.SIGINT)
    while process.poll() is None:  # as a user who presses Ctrl-C again and again
        time.sleep(0.005)
        process.send_signal(signal.SIGINT)
    assert _names(tmp_path) == []


def test_many_writers_at_once_leave_one_whole_result(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "out"), "25"]
    writers = [subprocess.Popen([*command, str(writer)], stderr=subprocess.PIPE, text=True) for writer in range(8)]
    for writer in writers:
        _, stderr = writer.communicate(timeout=120)
        assert writer.returncode == 0, stderr
    assert _names(tmp_path) == ["out"]
    assert len({path.read_text() for path in (tmp_path / "out").iterdir()}) == 1
    assert len(_names(tmp_path / "out")) == 10


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS])
def test_a_filesystem_that_cannot_exchange(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(exchange, "_rename", lacking)
    for text in ("first", "second"):
        _write(new_folder, tmp_path / "out", text)
        assert _text(tmp_path / "out") == text
        assert _names(tmp_path) == ["out"]


def test_a_kill_between_two_renames_is_mended_by_the_next(tmp_path: Path) -> None:
    """Only where the filesystem cannot exchange: what `exchange.put` left when it was killed half-way."""
    partial = tmp_path / ".out.0123456789ab.partial"
    (partial / "out").mkdir(parents=True)
    (partial / exchange.ASIDE / "out").mkdir(parents=True)
    (partial / exchange.ASIDE / "out" / "inside").write_text("old")
    clear_abandoned(tmp_path, "out")
    assert _names(tmp_path) == ["out"]
    assert _text(tmp_path / "out") == "old"


def test_it_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[str, bool]] = []
    plain = os.fsync

    def watched(descriptor: int) -> None:
        synced.append((Path(os.readlink(f"/proc/self/fd/{descriptor}")).name, (tmp_path / "out").exists()))
        plain(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    _write(new_folder, tmp_path / "out", "x")
    assert synced == [("inside", False), ("out", False), (tmp_path.name, True)]


def test_a_temporary_folder_is_private_and_vanishes(tmp_path: Path) -> None:
    with temporary_folder(tmp_path) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "inside").mkdir()
    assert _names(tmp_path) == []


def test_other_names_are_left_alone(tmp_path: Path) -> None:
    names = [".out.partial", ".out.0123456789ab", ".out.0123456789zz.partial", "x.0123456789ab.partial"]
    for name in [*names, ".other.0123456789ab.partial"]:
        (tmp_path / name).mkdir()
    (tmp_path / ".out.0123456789ab.partial").symlink_to(tmp_path / names[0])
    _write(new_folder, tmp_path / "out", "x")
    left = [*names, ".other.0123456789ab.partial", ".out.0123456789ab.partial", "out"]
    assert _names(tmp_path) == sorted(left)


def test_a_folder_is_discarded_as_one(tmp_path: Path) -> None:
    (tmp_path / "out" / "deep").mkdir(parents=True)
    discard(tmp_path / "out")
    assert _names(tmp_path) == []
    discard(tmp_path / "out")  # nothing there is no error
