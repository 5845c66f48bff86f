"""Ctrl-C, SIGTERM and SIGHUP end a command even where the library that was running swallows the exception they raise.

C extensions do that while they are imported: then the request is remembered, and raised again at the next step.
"""

import signal
import sys
from types import FrameType

TYPE_CHECKING = False  # as in enginesmith/__init__.py
if TYPE_CHECKING:
    from typing import NoReturn

INTERRUPTED, TERMINATED, HUNG_UP = 130, 143, 129

_asked: signal.Signals | None = None


def install() -> None:
    """Handle them in this process; a shell that had Ctrl-C or SIGHUP ignored (nohup, &) keeps it so."""
    signal.signal(signal.SIGTERM, _on_signal)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, _on_signal)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _on_signal)


def asked() -> bool:
    """Whether a signal asked the process to end."""
    return _asked is not None


def say_interrupted() -> int:
    """Tell the user, once; returns the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.stderr is not None:
        print("interrupted", file=sys.stderr)
    return INTERRUPTED


def check() -> None:
    """Raise the request to stop that came before, if one came."""
    if _asked is not None:
        _raise(_asked)


def _on_signal(number: int, frame: FrameType | None) -> None:
    global _asked
    _asked = signal.Signals(number)
    _raise(_asked)


def _raise(number: signal.Signals) -> "NoReturn":
    if number is signal.SIGTERM:
        raise SystemExit(TERMINATED)
    if number is signal.SIGHUP:
        raise SystemExit(HUNG_UP)
    raise KeyboardInterrupt
