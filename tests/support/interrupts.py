"""An interrupt at a line of our choice, as Ctrl-C may come between any two instructions."""

import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import enginesmith.runtime

RUNTIME = str(Path(enginesmith.runtime.__path__[0]))


class Interrupter:
    """Runs calls, and raises `kind` at their n-th lines inside the runtime, for each n of `at`; counts the lines.

    Lines that begin with `with` or `try` are left out: the interpreter looks for signals between neither the body and
    the `__exit__` of a lock, which is C, nor at a `try`, which does nothing; a tracer is called at both.
    """

    def __init__(self, *at: int, kind: type[BaseException] = KeyboardInterrupt) -> None:
        self.lines = 0
        self.raised = 0
        self._at = set(at)
        self._kind = kind

    def run(self, call: Callable[[], object]) -> None:
        """Call, swallowing the interrupt; `raised` tells whether there was one."""
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            call()
        except self._kind:
            assert self.raised
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._line if frame.f_code.co_filename.startswith(RUNTIME) else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line" and not _source(frame).startswith(("with ", "try:")):
            self.lines += 1
            if self.lines in self._at:
                self.raised += 1
                raise self._kind
        return self._line


def _source(frame: FrameType) -> str:
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
