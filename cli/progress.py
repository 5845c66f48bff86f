"""Progress on stderr: bars on a terminal, a line at the start and the end of each task elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..progress import Progress, Task
from . import stop_signals
from .terminal import printable, say

if TYPE_CHECKING:
    import rich.progress


class _Bar:
    def __init__(self, bars: "rich.progress.Progress", id: "rich.progress.TaskID") -> None:
        self._bars, self._id = bars, id

    def advance(self, amount: float = 1) -> None:
        self._bars.advance(self._id, amount)


class BarProgress:
    """One rich bar a task; finished bars stay, with their time, and nested tasks share the screen."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            SpinnerColumn,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        console = Console(file=sys.stderr)  # the file itself: a trace redirects what libraries print
        unicode = console.encoding.startswith("utf")
        self._bars = Progress(
            SpinnerColumn("dots" if unicode else "line", finished_text="[green]✓" if unicode else "[green]+"),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=28),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._open = 0

    @contextmanager
    def task(self, description: str, total: float | None = None) -> Iterator[Task]:
        stop_signals.check()
        if self._open == 0:
            self._bars.start()
        self._open += 1
        id = self._bars.add_task(printable(description), total=total)
        try:
            yield _Bar(self._bars, id)
            stop_signals.check()
            done = total if total is not None else 1
            self._bars.update(id, total=done, completed=done)
            self._bars.stop_task(id)
        finally:
            self._open -= 1
            if self._open == 0:
                self._bars.stop()
                for finished in self._bars.task_ids:
                    self._bars.remove_task(finished)


class _Counted:
    def advance(self, amount: float = 1) -> None:
        pass


class LineProgress:
    """Plain lines, for logs: what began, and how long it took when that was over a second."""

    @contextmanager
    def task(self, description: str, total: float | None = None) -> Iterator[Task]:
        stop_signals.check()
        say(f"{description} ...", err=True)
        start = time.monotonic()
        yield _Counted()
        stop_signals.check()
        if (took := time.monotonic() - start) >= 1:
            say(f"{description}: {took:.1f} s", err=True)


def terminal_progress() -> Progress:
    """What suits stderr: bars on a terminal, lines otherwise."""
    return BarProgress() if sys.stderr is not None and sys.stderr.isatty() else LineProgress()
