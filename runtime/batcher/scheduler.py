"""In-flight batching: which tokens of which requests the next step processes.

Every step, running requests that decode come first with a token each, then chunks of prompts fill what is left of
`max_num_tokens`, running requests before waiting ones. A request that starts takes over what is cached of its tokens.
When the cache runs full, the newest request is preempted: it loses its blocks, goes back to its place in the queue, and
later computes what is left of neither its prompt nor its output.
"""

from bisect import insort
from operator import attrgetter

from ..kv_cache.manager import KvCacheManager
from ..manifest import Limits
from ..request import Request, Status
from .policies import CapacityPolicy, admission_rule

_queue_order = attrgetter("queue_key")


class Plan:
    """How many tokens each request processes in a step, in the order in which they are packed."""

    __slots__ = ("counts", "num_rows", "num_tokens")

    def __init__(self) -> None:
        self.counts: dict[Request, int] = {}
        self.num_tokens = 0
        self.num_rows = 0
        """Of logits that are wanted."""

    def add(self, request: Request, count: int) -> None:
        self.counts[request] = count
        self.num_tokens += count
        self.num_rows += _num_rows(request, count)

    def drop(self, request: Request) -> None:
        count = self.counts.pop(request, 0)
        self.num_tokens -= count
        self.num_rows -= _num_rows(request, count)


def _num_rows(request: Request, count: int) -> int:
    """Rows of logits that are wanted of a request's next tokens."""
    return max(0, request.num_computed + count - max(request.num_computed, request.first_row))


class Scheduler:
    """Keeps the waiting and the running requests, both by priority and then by arrival; `unfinished` holds all.

    A request may be held back until the prompt that it has in common with another, its leader, is in the cache.
    """

    def __init__(
        self,
        kv: KvCacheManager,
        limits: Limits,
        policy: CapacityPolicy = CapacityPolicy.GUARANTEED_NO_EVICT,
    ) -> None:
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.unfinished: set[Request] = set()
        self.num_preemptions = 0
        self.prefix_cache_queries = 0
        """Tokens of the requests that started; of those that started again, too."""
        self.prefix_cache_hits = 0
        """How many of them were in the cache."""
        self._kv = kv
        self._rule = admission_rule(policy)
        self._held: dict[Request, Request] = {}  # with their leaders
        self._max_tokens = limits.max_num_tokens
        self._max_rows = limits.max_logits_rows
        self._max_running = min(limits.max_batch_size, limits.max_num_tokens)  # so that every request moves every step

    def add(self, request: Request) -> None:
        """Queue a new request."""
        self.unfinished.add(request)
        insort(self.waiting, request, key=_queue_order)

    def hold(self, request: Request, leader: Request) -> None:
        """Queue a new request once its leader's prompt is computed, or the leader gone."""
        self.unfinished.add(request)
        self._held[request] = leader

    def release(self, leader: Request) -> None:
        """Queue those that a request leads."""
        for request in [held for held, its_leader in self._held.items() if its_leader is leader]:
            del self._held[request]
            self.add(request)

    def remove(self, request: Request) -> None:
        """Finish a request: forget it, wherever it is, and free its blocks; it need not have been added."""
        if self._held.pop(request, None) is None and request in self.unfinished:
            queue = self.running if request.status is Status.RUNNING else self.waiting
            queue.remove(request)
            self._kv.free(request.blocks)
        request.status = Status.FINISHED
        self.unfinished.discard(request)
        self.release(request)

    def recompute(self, request: Request) -> None:
        """Take a running request's blocks: what it holds in the cache is of no use, and computed again."""
        self.running.remove(request)
        self._kv.free(request.blocks)
        request.num_computed = 0
        request.status = Status.WAITING
        self.add(request)

    def schedule(self) -> Plan:
        """Plan a step and reserve its blocks. Empty only when no request is waiting or running."""
        plan = Plan()
        preemptions = self.num_preemptions
        self._plan_running(plan)
        if self.waiting and preemptions == self.num_preemptions:
            self._plan_waiting(plan)
        return plan

    def _plan_running(self, plan: Plan) -> None:
        decoding = [request for request in self.running if request.num_pending == 1]
        prefilling = [request for request in self.running if request.num_pending > 1]
        for request in decoding + prefilling:
            count = self._affordable(request, plan)
            if count and self._make_room(request, count, plan):
                plan.add(request, count)

    def _make_room(self, request: Request, count: int, plan: Plan) -> bool:
        """Reserve blocks for a running request, preempting the newest ones; False when it is preempted itself."""
        while request.status is Status.RUNNING:
            if self._reserve(request, count):
                return True
            victim = self.running[-1]
            plan.drop(victim)
            self._preempt(victim)
        return False

    def _plan_waiting(self, plan: Plan) -> None:
        while self.waiting and len(self.running) < self._max_running:
            request = self.waiting[0]
            if plan.num_tokens == self._max_tokens:
                break
            prefix = self._kv.find(request.blocks, request.token_ids, request.first_row)
            if not self._rule.admit(self._kv, request, prefix, len(self.running)):
                break
            request.num_computed = self._kv.take(request.blocks, prefix)
            count = self._affordable(request, plan)
            if not count or not self._reserve(request, count):
                self._kv.free(request.blocks)
                request.num_computed = 0
                break
            self.prefix_cache_queries += len(request.token_ids)
            self.prefix_cache_hits += request.num_computed
            del self.waiting[0]
            request.status = Status.RUNNING
            insort(self.running, request, key=_queue_order)
            plan.add(request, count)

    def _affordable(self, request: Request, plan: Plan) -> int:
        """How many of a request's tokens, and of the rows of logits that they bring, the step has room for."""
        count = min(request.num_pending, self._max_tokens - plan.num_tokens)
        without_rows = max(0, request.first_row - request.num_computed)
        return min(count, without_rows + self._max_rows - plan.num_rows)

    def _reserve(self, request: Request, count: int) -> bool:
        return self._kv.reserve(request.blocks, request.num_computed, request.num_computed + count)

    def _preempt(self, request: Request) -> None:
        self.recompute(request)
        request.metrics.num_preemptions += 1
        self.num_preemptions += 1
