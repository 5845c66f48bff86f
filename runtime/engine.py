"""The step loop: schedule, reserve, execute, sample, commit, finish."""

import time
from collections.abc import Sequence

from .batcher.policies import CapacityPolicy
from .batcher.scheduler import Plan, Scheduler
from .executors.executor import Executor, Sample, SequenceSlice
from .kv_cache.manager import KvCacheManager
from .manifest import Limits
from .outputs import FinishReason
from .request import Request, Status


class Engine:
    """Serves requests together, a step at a time. Calls come from one thread at a time."""

    def __init__(
        self,
        executor: Executor,
        kv: KvCacheManager,
        limits: Limits,
        policy: CapacityPolicy = CapacityPolicy.GUARANTEED_NO_EVICT,
    ) -> None:
        self.executor = executor
        self.kv = kv
        self.limits = limits
        self.scheduler = Scheduler(kv, limits, policy)

    @property
    def has_unfinished(self) -> bool:
        """Whether a step would do something."""
        return bool(self.scheduler.running or self.scheduler.waiting)

    def add(self, request: Request) -> None:
        """Queue a request; it takes part from the next step on."""
        self.scheduler.add(request)

    def abort(self, request: Request) -> None:
        """End a request wherever it is and free its blocks; nothing happens to a finished one."""
        if not request.finished:
            self._finish(request, FinishReason.ABORT)

    def step(self) -> Sequence[Request]:
        """Run one step; returns the requests that took part.

        A step is a transaction: until it has executed and sampled, no request has moved. When that fails, the requests
        that cannot be served end with the error, their blocks are free again, and all others go on.
        """
        plan = self.scheduler.schedule()
        if not plan.counts:
            return ()
        started = time.perf_counter()
        try:
            drawn = self._execute(plan)
        except Exception as error:
            drawn = self._execute_apart(plan, error)
        self._commit(plan, drawn, started)
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
                self._fail(request, reason)
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
            request.num_computed += count
            if request.metrics.first_scheduled_time is None:
                request.metrics.first_scheduled_time = started
        for request, sample in drawn:
            try:
                request.append(sample, now)
            except Exception as error:  # its text alone went wrong: the others' tokens stand
                self._fail(request, error)
            else:
                if request.finish_reason:
                    self._finish(request, request.finish_reason)

    def _fail(self, request: Request, error: Exception) -> None:
        request.error = error
        self._finish(request, FinishReason.ABORT)

    def _finish(self, request: Request, reason: FinishReason) -> None:
        self.scheduler.remove(request)
        request.finish_reason = reason
        request.status = Status.FINISHED
