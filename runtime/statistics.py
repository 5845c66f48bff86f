"""What the engine counts while it serves: vLLM's metrics, without their format."""

import time
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from .request import Request

# vLLM's buckets, so that dashboards made for it fit.
_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_BETWEEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_LATENCY = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0)
_TOKENS = tuple(float(digit * 10**power) for power in range(6) for digit in (1, 2, 5))
_STEP_TOKENS = tuple(float(1 << power) for power in range(15))


@dataclass(slots=True)
class Histogram:
    """How many observations fell below each of `buckets` (upper bounds, inclusive), the last count is of all beyond."""

    buckets: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.buckets) + 1)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.buckets, value)] += 1
        self.sum += value

    def copy(self) -> Self:
        return type(self)(self.buckets, self.counts.copy(), self.sum)


@dataclass(slots=True)
class Statistics:
    """Totals since the engine was opened. Times are in seconds."""

    prompt_tokens: int = 0
    """Of the requests that have their first token."""
    cached_tokens: int = 0
    """How many of those were in the KV cache."""
    generation_tokens: int = 0
    num_steps: int = 0
    finished_requests: Counter[str] = field(default_factory=Counter)
    """By finish reason, and `error` for those that failed."""
    time_to_first_token: Histogram = field(default_factory=lambda: Histogram(_TTFT))
    inter_token_latency: Histogram = field(default_factory=lambda: Histogram(_BETWEEN))
    e2e_request_latency: Histogram = field(default_factory=lambda: Histogram(_LATENCY))
    request_queue_time: Histogram = field(default_factory=lambda: Histogram(_LATENCY))
    """From arrival to the first step."""
    request_prefill_time: Histogram = field(default_factory=lambda: Histogram(_LATENCY))
    """From the first step to the first token."""
    request_decode_time: Histogram = field(default_factory=lambda: Histogram(_LATENCY))
    """From the first token to the last."""
    request_prompt_tokens: Histogram = field(default_factory=lambda: Histogram(_TOKENS))
    request_generation_tokens: Histogram = field(default_factory=lambda: Histogram(_TOKENS))
    iteration_tokens: Histogram = field(default_factory=lambda: Histogram(_STEP_TOKENS))
    """Tokens that a step processed."""

    def stepped(self, num_tokens: int) -> None:
        """A step has processed so many tokens."""
        self.num_steps += 1
        self.iteration_tokens.observe(num_tokens)

    def drawn(self, request: "Request") -> None:
        """A request has one token more."""
        metrics, times = request.metrics, request.metrics.token_times
        self.generation_tokens += 1
        if len(times) > 1:
            self.inter_token_latency.observe(times[-1] - times[-2])
            return
        self.prompt_tokens += request.prompt_length
        self.cached_tokens += metrics.num_cached_tokens
        self.time_to_first_token.observe(times[0] - metrics.arrival_time)

    def finished(self, request: "Request") -> None:
        """A request has ended, however it did."""
        metrics, times = request.metrics, request.metrics.token_times
        self.finished_requests["error" if request.error else str(request.finish_reason)] += 1
        self.e2e_request_latency.observe(time.perf_counter() - metrics.arrival_time)
        self.request_prompt_tokens.observe(request.prompt_length)
        self.request_generation_tokens.observe(request.num_output)
        if metrics.first_scheduled_time is not None:
            self.request_queue_time.observe(metrics.first_scheduled_time - metrics.arrival_time)
            if times:
                self.request_prefill_time.observe(times[0] - metrics.first_scheduled_time)
                self.request_decode_time.observe(times[-1] - times[0])
