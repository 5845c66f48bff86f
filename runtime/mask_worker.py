"""Masks of constraints, computed beside the step whose tokens they are for.

A mask depends on the tokens before it, which are known when a step begins, and is needed when its logits are there.
Constraints that compute in native code, and a step, hold no lock of Python's: they run at the same time.
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue

from .token_constraint import TokenConstraint


class MaskWorker:
    """A thread that asks constraints for their masks; it is started when there is a first one."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Sequence[TokenConstraint] | None] = SimpleQueue()
        self._done: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @contextmanager
    def beside(self, constraints: Sequence[TokenConstraint]) -> Iterator[None]:
        """Meanwhile the constraints' masks are computed; at the end they are there.

        What a constraint raises, it raises again when it is asked for its mask.
        """
        if not constraints:
            yield
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="enginesmith-masks", daemon=True)
            self._thread.start()
        self._work.put(constraints)
        try:
            yield
        finally:
            self._done.get()

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (constraints := self._work.get()) is not None:
            for constraint in constraints:
                with contextlib.suppress(Exception):
                    constraint.mask()
            self._done.put(None)
