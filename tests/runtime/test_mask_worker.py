"""Masks beside a step: asked of the constraints by another thread, all before the step's end, whatever goes wrong."""

import threading

import pytest

from enginesmith.errors import RequestError
from enginesmith.runtime.mask_worker import MaskWorker


class Constraint:
    """Notes which threads ask for its mask."""

    def __init__(self, error: Exception | None = None) -> None:
        self.threads: list[threading.Thread] = []
        self._error = error

    def mask(self) -> int:
        self.threads.append(threading.current_thread())
        if self._error is not None:
            raise self._error
        return 0

    def accept(self, token: int) -> None: ...


def test_masks_are_computed_while_a_step_runs():
    worker, stepping = MaskWorker(), threading.Event()

    class Waiting(Constraint):
        def mask(self) -> int:
            assert stepping.wait(10)
            return super().mask()

    held = [Waiting(), Waiting()]
    for turn in (1, 2):
        with worker.beside(held):
            stepping.set()
        assert [len(constraint.threads) for constraint in held] == [turn, turn]
    (thread,) = {thread for constraint in held for thread in constraint.threads}
    assert thread is not threading.current_thread()
    assert thread.is_alive()
    worker.close()
    assert not thread.is_alive()


def test_without_constraints_there_is_no_thread():
    before = threading.active_count()
    worker = MaskWorker()
    with worker.beside([]):
        assert threading.active_count() == before
    worker.close()


def test_what_fails_keeps_nobody_waiting():
    worker, failing, other = MaskWorker(), Constraint(RequestError("too complex")), Constraint()
    with worker.beside([failing, other]):
        pass
    with pytest.raises(OSError, match="the step"), worker.beside([failing, other]):
        raise OSError("the step failed")
    assert len(failing.threads) == len(other.threads) == 2
    with pytest.raises(RequestError, match="too complex"):
        failing.mask()
    worker.close()
