"""The step loop: schedule, reserve, execute, sample, commit, finish.

An interrupt (Ctrl-C in the main thread, an exception sent to another) may come between any two instructions, and the
step that it breaks may hold requests of other callers. So a change is bracketed by `_whole`: who finds it False puts
all requests back into the queue, as if preempted, and drops the half of a token that one of them may have.
"""

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from ..errors import EngineError
from .batcher.policies import CapacityPolicy
from .batcher.scheduler import Plan, Scheduler
from .executors.executor import Executor, Sample, SequenceSlice
from .kv_cache.manager import KvCacheManager
from .manifest import Limits
from .outputs import FinishReason
from .request import Request


class Engine:
    """Serves requests together, a step at a time. Calls come from one thread at a time."""

    def __init__(
        self,
        executor: Executor,
        kv: KvCacheManager,
        limits: Limits,
        policy: CapacityPolicy = CapacityPolicy.GUARANTEED_NO_EVICT,
        long_rope_after: int | None = None,
    ) -> None:
        self.executor = executor
        self.kv = kv
        self.limits = limits
        self.scheduler = Scheduler(kv, limits, policy)
        self._busy = threading.Lock()  # `with` takes and gives it in C, where no interrupt comes between
        self._whole = True
        self._aborted: deque[Request] = deque()
        self._long_rope_after = long_rope_after

    @property
    def has_unfinished(self) -> bool:
        """Whether a step would do something."""
        return bool(self.scheduler.unfinished)

    def add(self, request: Request) -> None:
        """Queue a request; it takes part from the next step on."""
        with self._exclusive():
            self._settle()
            self._whole = False
            self.scheduler.add(request)
            self._whole = True

    def abort(self, requests: Iterable[Request]) -> None:
        """Mark requests to be ended by the next `settle` or step; nothing happens to finished ones. From any thread."""
        self._aborted.extend(requests)

    def settle(self) -> None:
        """End what was aborted and free its blocks; after an interrupt, make the requests whole again.

        Within a step nothing happens: the garbage collector may close a stream there.
        """
        if not self._busy.locked():
            with self._busy:
                self._settle()

    def close(self) -> None:
        """Fail all requests, and close the executor."""
        with self._exclusive():
            self._settle()
            self._whole = False
            for request in list(self.scheduler.unfinished):
                self._fail(request, EngineError("the engine was closed before the request was finished"))
            self._whole = True
            self.executor.close()

    @contextmanager
    def lend_cache(self) -> Iterator[KvCacheManager]:
        """The KV cache, for sequences that are no requests; the borrower gives back what it took."""
        with self._exclusive():
            self._settle()
            self._whole = False
            try:
                yield self.kv
            except Exception:
                self._whole = True
                raise
            self._whole = True

    def step(self) -> Sequence[Request]:
        """Run one step; returns the requests that took part.

        A step is a transaction: until it has executed and sampled, no request has moved. When that fails, the requests
        that cannot be served end with the error, their blocks are free again, and all others go on.
        """
        with self._exclusive():
            self._settle()
            self._whole = False
            plan = self.scheduler.schedule()
            self._whole = True
            if not plan.counts:
                return ()
            started = time.perf_counter()
            try:
                drawn = self._execute(plan)
            except Exception as error:
                drawn = self._execute_apart(plan, error)
            self._whole = False
            self._commit(plan, drawn, started)
            self._whole = True
            return list(plan.counts)

    def _execute_apart(self, plan: Plan, error: Exception) -> list[tuple[Request, Sample]]:
        """After a failed step: each request by itself, so that only those fail that cannot be served.

        A request's results are the same alone, and keys and values may be written again.
        """
        drawn = []
        for request, count in list(plan.counts.items()):
            try:
                if len(plan.counts) == 1:
                    raise error
                single = Plan()
                single.add(request, count)
                drawn += self._execute(single)
            except Exception as reason:
                self._whole = False
                self._fail(request, reason)
                self._whole = True
        return drawn

    def _execute(self, plan: Plan) -> list[tuple[Request, Sample]]:
        """Process the planned tokens, and draw one for each request that has then processed all of its own."""
        slices, rows, drawing = [], [], []
        end = 0
        for request, count in plan.counts.items():
            start = request.num_computed
            slices.append(SequenceSlice(request.token_ids, start, start + count, request.blocks.tables))
            end += count
            if count == request.num_pending:
                rows.append(end - 1)
                drawing.append(request)
        self.executor.step(slices, rows)
        samples = self.executor.sample([request.sample_row for request in drawing]) if drawing else ()
        return list(zip(drawing, samples, strict=True))

    def _commit(self, plan: Plan, drawn: list[tuple[Request, Sample]], started: float) -> None:
        now = time.perf_counter()
        for request, count in plan.counts.items():
            if request.finished:  # it failed
                continue
            if request.metrics.first_scheduled_time is None:
                request.metrics.first_scheduled_time = started
                request.metrics.num_cached_tokens = request.num_computed
            request.num_computed += count
            self.kv.publish(request.blocks, request.token_ids, request.num_computed)
        for request, sample in drawn:
            try:
                request.append(sample, now)
            except Exception as error:  # its text alone went wrong: the others' tokens stand
                self._fail(request, error)
            else:
                if request.finish_reason:
                    self._finish(request, request.finish_reason)
                elif len(request.token_ids) - 1 == self._long_rope_after:  # other frequencies for all of its tokens
                    self.scheduler.recompute(request)

    def _exclusive(self) -> threading.Lock:
        """The lock of a call. Raises EngineError within another: a signal's handler must not change requests there."""
        if self._busy.locked():
            raise EngineError("the engine is in the midst of a step, and cannot be used from a signal's handler")
        return self._busy

    def _settle(self) -> None:
        """Each call begins with it, holding the lock."""
        if not self._whole:
            self._restore()
        self._whole = not self._aborted
        while self._aborted:
            request = self._aborted[0]
            if not request.finished:
                self._finish(request, FinishReason.ABORT)
            self._aborted.popleft()
        self._whole = True

    def _restore(self) -> None:
        """Undo or complete what an interrupt left half done."""
        for request in self.scheduler.restart():
            try:
                request.restore()
            except Exception as error:
                request.error = error
            if request.error is not None:
                self._finish(request, FinishReason.ABORT)
            elif request.finish_reason is not None:
                self._finish(request, request.finish_reason)

    def _fail(self, request: Request, error: Exception) -> None:
        request.error = error
        self._finish(request, FinishReason.ABORT)

    def _finish(self, request: Request, reason: FinishReason) -> None:
        request.finish_reason = reason  # first: a finish that is interrupted is known by it
        self.scheduler.remove(request)
