"""The step: schedule, reserve, execute, sample, commit, finish. One thread, the loop's, calls the engine."""

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..errors import RequestTimeoutError
from .batcher.policies import CapacityPolicy
from .batcher.scheduler import Plan, Scheduler
from .executors.executor import Draw, Executor, Sample, SequenceSlice
from .kv_cache.manager import KvCacheManager
from .manifest import Limits
from .mask_worker import MaskWorker
from .outputs import FinishReason
from .request import Request
from .statistics import Statistics
from .token_constraint import TokenConstraint


class Drawn(NamedTuple):
    """What a step has drawn for a request: what tokens of its prompt are reported with, and, at its end, a token."""

    request: Request
    prompt: Sequence[Sample]
    sample: Sample | None


class Engine:
    """Serves requests together, a step at a time."""

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
        self.statistics = Statistics()
        self._long_rope_after = long_rope_after
        self._masks = MaskWorker()
        self._ended: list[Request] = []  # since the last step began

    @property
    def has_unfinished(self) -> bool:
        """Whether a step would do something."""
        return bool(self.scheduler.unfinished)

    def add(self, requests: Sequence[Request]) -> None:
        """Queue the sequences of a prompt: the first at once, the others when they can share what it computes.

        What is told of the prompt comes of the first, and so before all outputs.
        """
        leader, *others = requests
        self.scheduler.add(leader)
        for request in others:
            if self.kv.shares_prefixes or leader.prompt_logprobs is not None:
                self.scheduler.hold(request, leader)
            else:
                self.scheduler.add(request)

    def abort(self, requests: Iterable[Request]) -> None:
        """End requests, and free their blocks; nothing happens to finished ones."""
        for request in requests:
            if not request.finished:
                self._finish(request, FinishReason.ABORT)

    def step(self) -> Sequence[Request]:
        """Run one step; returns the requests to which something happened since the last.

        A step is a transaction: until it has executed and sampled, no request has moved. When that fails, the requests
        that cannot be served end with the error, their blocks are free again, and all others go on.
        """
        self._expire()
        plan = self.scheduler.schedule()
        if plan.counts:
            started = time.perf_counter()
            try:
                drawn = self._execute(plan)
            except Exception as error:
                drawn = self._execute_apart(plan, error)
            self._commit(plan, drawn, started)
        return self.take_changed(plan)

    def close(self) -> None:
        """Free what the engine holds; it is not used any more."""
        self._masks.close()
        self.executor.close()

    def take_changed(self, plan: Plan | None = None) -> Sequence[Request]:
        """The requests of a plan, and all that ended since this was last asked."""
        ended, self._ended = self._ended, []
        planned = plan.counts if plan else {}
        return [*planned, *(request for request in ended if request not in planned)]

    def _execute_apart(self, plan: Plan, error: Exception) -> list[Drawn]:
        """After a failed step: each request by itself, so that only those fail that cannot be served.

        A request's results are the same alone, and keys and values may be written again. States stand nowhere after a
        step that failed, and are computed again.
        """
        drawn: list[Drawn] = []
        for request, count in list(plan.counts.items()):
            try:
                if len(plan.counts) == 1:
                    raise error
                single = Plan()
                single.add(request, count)
                if self.kv.has_states:
                    self._replay(request)
                drawn += self._execute(single)
            except Exception as reason:
                self._fail(request, reason)
        return drawn

    def _replay(self, request: Request) -> None:
        """Bring the states of a request to where it stands, from its first token on."""
        for start in range(0, request.num_computed, self.limits.max_num_tokens):
            stop = min(start + self.limits.max_num_tokens, request.num_computed)
            self.executor.step([_slice(request, start, stop)], ())

    def _execute(self, plan: Plan) -> list[Drawn]:
        """Process the planned tokens, and draw one for each request that has then processed all of its own."""
        slices: list[SequenceSlice] = []
        rows: list[int] = []
        draws: list[Draw] = []
        numbers: list[tuple[Request, int]] = []  # of draws a request
        end = 0
        for request, count in plan.counts.items():
            start = request.num_computed
            slices.append(_slice(request, start, start + count))
            wanted = range(max(start, request.first_row), start + count)
            rows += [end + position - start for position in wanted]
            numbers.append((request, len(wanted)))
            draws += [request.draw(len(draws) + offset, position) for offset, position in enumerate(wanted)]
            end += count
        with self._masks.beside([constraint for draw in draws if (constraint := _constraint_of(draw)) is not None]):
            self.executor.step(slices, rows)
        samples = iter(self.executor.sample(_with_masks(draws)) if draws else ())
        drawn = []
        for request, number in numbers:
            own = [next(samples) for _ in range(number)]
            ends = plan.counts[request] == request.num_pending
            drawn.append(Drawn(request, own[:-1] if ends else own, own[-1] if ends else None))
        return drawn

    def _commit(self, plan: Plan, drawn: Sequence[Drawn], started: float) -> None:
        now = time.perf_counter()
        for request, count in plan.counts.items():
            if request.finished:  # it failed
                continue
            if request.metrics.first_scheduled_time is None:
                request.metrics.first_scheduled_time = started
                request.metrics.num_cached_tokens = request.num_computed
            request.num_computed += count
            self.kv.publish(request.blocks, request.token_ids, request.num_computed)
            if request.num_computed >= request.prompt_length:
                self.scheduler.release(request)
        for request, prompt, sample in drawn:
            request.append_prompt(prompt)
            if sample is None:
                continue
            try:
                request.append(sample, now)
            except Exception as error:  # its text alone went wrong: the others' tokens stand
                self._fail(request, error)
            else:
                self.statistics.drawn(request)
                if request.finish_reason:
                    self._finish(request, request.finish_reason)
                elif len(request.token_ids) - 1 == self._long_rope_after:  # other frequencies for all of its tokens
                    self.scheduler.recompute(request)
        self.statistics.stepped(plan.num_tokens)

    def _expire(self) -> None:
        """End what has run out of time."""
        now = time.perf_counter()
        for request in [r for r in self.scheduler.unfinished if r.deadline is not None and r.deadline <= now]:
            self._fail(
                request,
                RequestTimeoutError(
                    f"the request was not finished within its timeout of {request.timeout:g} s: "
                    f"{request.num_output} tokens were generated; allow more time, or ask for fewer with max_tokens"
                ),
            )

    def _fail(self, request: Request, error: Exception) -> None:
        request.error = error
        self._finish(request, FinishReason.ABORT)

    def _finish(self, request: Request, reason: FinishReason) -> None:
        request.finish_reason = reason
        self.scheduler.remove(request)
        self.statistics.finished(request)
        self._ended.append(request)


def _slice(request: Request, start: int, stop: int) -> SequenceSlice:
    return SequenceSlice(request.token_ids, start, stop, request.blocks.tables, request.blocks.slot)


def _with_masks(draws: Sequence[Draw]) -> Sequence[Draw]:
    """The draws, now that constraints have said what may be drawn."""
    for draw in draws:
        if (constraint := _constraint_of(draw)) is not None:
            draw.sampling.mask = constraint.mask() or 0
    return draws


def _constraint_of(draw: Draw) -> TokenConstraint | None:
    """What says which token it may draw, if it draws one."""
    return draw.sampling.constraint if draw.token < 0 else None
