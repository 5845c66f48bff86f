"""Requests to stop, held back over a stretch that must not be left half done."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# SIGINT is restored last: the handlers of the others end the process, so that what is not restored then is not missed.
STOPS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)


@contextmanager
def held() -> Iterator[None]:
    """What SIGINT, SIGTERM and SIGHUP ask for meanwhile is done at the end of the block.

    Python runs its handlers in the main thread, whichever thread the kernel chose; in other threads nothing is held.
    A mask of signals would not do, since the libraries' threads do not share it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []
    handlers = {number: signal.getsignal(number) for number in STOPS}
    changed = {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    try:
        for number in changed:
            signal.signal(number, lambda number, _: asked.append(number))
        yield
    finally:
        for number, handler in changed.items():
            signal.signal(number, handler)
        for number in dict.fromkeys(asked):
            signal.raise_signal(number)
