"""Progress: bars on a terminal, lines elsewhere, and in both an error passes through."""

import os
import pty
import subprocess
import sys

import pytest

from enginesmith.cli.progress import BarProgress, LineProgress, terminal_progress

_NESTED = """
from enginesmith.cli.progress import terminal_progress
progress = terminal_progress()
with progress.task("outer", 2) as outer:
    outer.advance()
    with progress.task("inner") as inner:
        inner.advance(3)
with progress.task("after", 1) as after:
    after.advance()
"""


def test_lines_when_it_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    progress = terminal_progress()
    assert isinstance(progress, LineProgress)
    with progress.task("packing", 3) as task:
        task.advance()
    captured = capsys.readouterr()
    assert captured.err == "packing ...\n"
    assert captured.out == ""


def test_bars_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", _NESTED], stderr=theirs, env=os.environ | {"TERM": "xterm"})
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 4096):
            shown += data
    except OSError:  # Linux ends a terminal whose other side is closed so
        pass
    assert process.wait() == 0
    text = shown.decode()
    for part in ("outer", "inner", "after", "100%"):
        assert part in text


@pytest.mark.parametrize("kind", [LineProgress, BarProgress])
def test_errors_pass_and_the_next_task_works(kind: type[LineProgress] | type[BarProgress]) -> None:
    progress = kind()

    def fail() -> None:
        with progress.task("first", 2), progress.task("second"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    with progress.task("third", 1) as task:
        task.advance()
