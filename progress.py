"""How long work reports its progress, without knowing who shows it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Task(Protocol):
    """One bar: `advance(n)` moves it by n of its `total` units."""

    def advance(self, amount: float = 1) -> None: ...


class Progress(Protocol):
    """Opens bars. `total=None` is a bar whose end is not known beforehand."""

    def task(self, description: str, total: float | None = None) -> AbstractContextManager[Task]: ...


class _Silent:
    def advance(self, amount: float = 1) -> None:
        pass


class NoProgress:
    """Shows nothing: the default of the Python API."""

    @contextmanager
    def task(self, description: str, total: float | None = None) -> Iterator[Task]:
        yield _Silent()
