"""Ctrl-C and SIGTERM end a command even where the library that was running swallows the exception they raise.

C extensions do that while they are imported: then the request is remembered, and raised again at the next step.
"""

import signal
from types import FrameType
from typing import NoReturn

TERMINATED = 143

_asked: signal.Signals | None = None


def install() -> None:
    """Handle both signals in this process; a shell that had Ctrl-C ignored (nohup, &) keeps it so."""
    signal.signal(signal.SIGTERM, _on_signal)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _on_signal)


def check() -> None:
    """Raise the request to stop that came before, if one came."""
    if _asked is not None:
        _raise(_asked)


def _on_signal(number: int, frame: FrameType | None) -> None:
    global _asked
    _asked = signal.Signals(number)
    _raise(_asked)


def _raise(number: signal.Signals) -> NoReturn:
    if number is signal.SIGTERM:
        raise SystemExit(TERMINATED)
    raise KeyboardInterrupt
