"""One thread owns the engine and steps it; others talk to it.

They hand it work through a `SimpleQueue`, which takes no lock of Python's, so that a caller waits neither for a step
nor for another caller, and an interrupt of a caller's thread (Ctrl-C) leaves nothing half done. A step runs in native
code, which holds no lock either. What a step has changed is published request by request, and the streams are told.
"""

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from ..errors import EngineClosedError, EngineDeadError, QueueFullError
from .engine import Engine
from .outputs import FinishReason
from .request import Request, Status
from .stream import Notify, RequestStream

log = logging.getLogger(__name__)

T = TypeVar("T")

_LOOK_AGAIN = 1.0  # seconds after which who waits for a reply looks whether the thread is still there


class EngineLoop:
    """The handle of an engine that a thread of its own steps, until `close`, or until nobody has the handle any more.

    `max_queued` bounds how many requests wait to be started; None: any number. All methods may be called by any thread.
    """

    def __init__(self, engine: Engine, max_queued: int | None = None) -> None:
        self.engine = engine
        self._max_queued = max_queued
        self._core = _Core(engine)
        self._submitting = threading.RLock()  # a signal's handler may submit while its thread does
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._core.run, name="enginesmith-engine", daemon=True)
        self._thread.start()
        self._end = weakref.finalize(self, _end, self._core, self._thread, self._pid)  # at exit too

    @property
    def refusal(self) -> EngineClosedError | None:
        """Why no request is taken any more; None while they are."""
        return self._core.refusal

    @property
    def num_queued(self) -> int:
        """Requests submitted that no step has processed yet."""
        return len(self._core.queued)

    @property
    def num_arriving(self) -> int:
        """Those of them that the engine does not know yet."""
        return len(self._core.arriving)

    def submit(self, streams: Sequence[RequestStream]) -> None:
        """Serve requests. Raises QueueFullError, taking none, where they are more than may wait; EngineClosedError."""
        self._require_own_process()
        core = self._core
        with self._submitting:
            if core.refusal is not None:
                raise core.refusal
            if self._max_queued is not None and self.num_queued + len(streams) > self._max_queued:
                raise QueueFullError(self._max_queued)
            core.queued.update(streams)
            core.arriving.update(streams)
            core.work.put(lambda: core.accept(streams))
        if core.ended:  # since it was asked: nobody else would answer
            core.refuse(streams)

    def abort(self, streams: Sequence[RequestStream]) -> None:
        """End requests before the next step, and free their blocks; does not wait for it. Finished ones stay so."""
        core = self._core
        if os.getpid() == self._pid and not all(stream.finished for stream in streams):
            core.work.put(lambda: core.abort(streams))

    def call(self, work: Callable[[], T]) -> T:
        """What `work` gives when the loop's thread does it, between two steps; what it raises, too."""
        self._require_own_process()
        reply: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._core.work.put(lambda: reply.put(_outcome(work)))
        outcome = self._reply(reply)
        if outcome is None:
            raise self._core.refusal or EngineClosedError(_CLOSED)
        value, error = outcome
        if error is not None:
            raise error
        return value

    def drain(self, timeout: float | None = None) -> bool:
        """Take no more requests, and wait until all are finished; False when some are not after `timeout` seconds."""
        self._require_own_process()
        core = self._core
        core.refusal = core.refusal or EngineClosedError("the engine finishes what it has, and takes no more requests")
        reply: SimpleQueue[bool] = SimpleQueue()
        core.work.put(lambda: core.waiting_for_idle.append(reply))
        return self._reply(reply, timeout) is not None or not self._thread.is_alive()

    def close(self) -> None:
        """End the loop after the step under way, and free the engine. Whoever waits for a request gets an error."""
        self._end()

    def _reply(self, reply: "SimpleQueue[T]", timeout: float | None = None) -> T | None:
        """What the loop's thread puts there; None when it does not within `timeout` seconds, or has ended before."""
        if self._core.ended:
            timeout = 0
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _LOOK_AGAIN if until is None else min(_LOOK_AGAIN, until - time.monotonic())
            try:
                return reply.get(timeout=max(0.0, left))
            except Empty:
                if (until is not None and time.monotonic() >= until) or not self._thread.is_alive():
                    return None

    def _require_own_process(self) -> None:
        if os.getpid() != self._pid:
            raise EngineClosedError(
                "this process was forked from the one that opened the engine, and lacks the thread that runs it: "
                "open the engine in this process"
            )


_CLOSED = "the engine was closed: open it again to use it"


class _Core:
    """What the loop's thread has to itself; it knows nothing of the handle, whose end ends it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.queued: set[RequestStream] = set()
        self.arriving: set[RequestStream] = set()
        self.waiting_for_idle: list[SimpleQueue[bool]] = []
        self.refusal: EngineClosedError | None = None
        """Why no request is taken any more."""
        self.closing = self.ended = False
        self._streams: dict[Request, RequestStream] = {}  # of the requests that the engine has

    def run(self) -> None:
        """The thread."""
        error = EngineClosedError("the engine was closed before the request was finished")
        self_inflicted = EngineClosedError(_CLOSED)
        try:
            while not self.closing:
                self._turn()
        except BaseException as fault:
            log.exception("the engine's thread ended by a fault")
            error = self_inflicted = EngineDeadError(
                f"the engine's thread ended by a fault of its own: {fault!r}; open the engine again"
            )
        self.refusal, self.ended = self_inflicted, True
        self.refuse(set(self._streams.values()), error)
        self._do_work(wait=False)
        self._reply_idle()
        self.engine.close()

    def accept(self, streams: Iterable[RequestStream]) -> None:
        """Queue requests that were submitted."""
        if self.ended:
            self.refuse(streams)
            return
        for stream in streams:
            self.arriving.discard(stream)
            self._streams.update(dict.fromkeys(stream.requests, stream))
            self.engine.add(stream.requests)

    def abort(self, streams: Iterable[RequestStream]) -> None:
        """End requests, wherever they are; one that an interrupt kept from being submitted is nowhere."""
        for stream in streams:
            self.arriving.discard(stream)
            self.engine.abort(stream.requests)
        self._tell(self.engine.take_changed())

    def refuse(self, streams: Iterable[RequestStream], error: Exception | None = None) -> None:
        """End requests without the engine."""
        for stream in streams:
            for request in stream.requests:
                if not request.progress.finish_reason:
                    request.error, request.finish_reason = error or self.refusal, FinishReason.ABORT
                    request.status = Status.FINISHED
                    request.publish()
            self.queued.discard(stream)
            self.arriving.discard(stream)
            _notify(stream.notify, [stream])

    def _turn(self) -> None:
        """What was asked for meanwhile, and a step."""
        if not self.engine.has_unfinished:
            self._reply_idle()
        self._do_work(wait=not self.engine.has_unfinished)
        if self.engine.has_unfinished and not self.closing:
            self._tell(self.engine.step())

    def _do_work(self, *, wait: bool) -> None:
        try:
            if wait:
                self.work.get()()
            while True:
                self.work.get_nowait()()
        except Empty:
            pass

    def _reply_idle(self) -> None:
        while self.waiting_for_idle:
            self.waiting_for_idle.pop().put(True)

    def _tell(self, changed: Iterable[Request]) -> None:
        """Publish what happened to requests, and notify whoever follows them, once each."""
        told: dict[Notify, dict[RequestStream, None]] = {}
        for request in changed:
            is_news, stream = request.publish(), self._streams.get(request)
            if stream is None:  # it was never submitted
                continue
            if request.metrics.first_scheduled_time is not None or stream.finished:
                self.queued.discard(stream)
            if request.finished:
                del self._streams[request]
            if is_news and (stream.finished or not stream.final_only):
                told.setdefault(stream.notify, {})[stream] = None
        for notify, streams in told.items():
            if not _notify(notify, list(streams)):
                self.abort(streams)


def _notify(notify: Notify, streams: list[RequestStream]) -> bool:
    """False when the one who follows is not there any more: an event loop that was closed."""
    try:
        notify(streams)
    except Exception:
        log.exception("a request's follower cannot be told, and is taken to be gone")
        return False
    return True


def _outcome(work: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    try:
        return work(), None
    except BaseException as error:
        return None, error


def _end(core: _Core, thread: threading.Thread, pid: int) -> None:
    if os.getpid() != pid:  # a fork's child, where the thread does not exist
        return
    core.closing = True
    core.work.put(lambda: None)
    if thread is not threading.current_thread():
        thread.join()
