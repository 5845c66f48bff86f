"""/metrics as Prometheus reads it. Names are vLLM's where the meaning is the same, so that its dashboards work."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from prometheus_client import Metric

    from ..runtime.snapshot import EngineStats
    from ..runtime.statistics import Histogram
    from .service import Service

_HISTOGRAMS = {
    "time_to_first_token": ("time_to_first_token_seconds", "From arrival to the first token."),
    "inter_token_latency": ("inter_token_latency_seconds", "From a token to the next."),
    "e2e_request_latency": ("e2e_request_latency_seconds", "From arrival to the end."),
    "request_queue_time": ("request_queue_time_seconds", "From arrival to the first step."),
    "request_prefill_time": ("request_prefill_time_seconds", "From the first step to the first token."),
    "request_decode_time": ("request_decode_time_seconds", "From the first token to the last."),
    "request_prompt_tokens": ("request_prompt_tokens", "Tokens of a prompt."),
    "request_generation_tokens": ("request_generation_tokens", "Tokens of an output."),
    "iteration_tokens": ("iteration_tokens_total", "Tokens that a step processed."),
}


def exposition(service: "Service") -> bytes:
    """The text of /metrics, from counts of this moment; may be called in any thread."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(service))
    return generate_latest(registry)


class _Snapshot(Collector):
    """The counts, as prometheus_client's families."""

    def __init__(self, service: "Service") -> None:
        self._service = service
        self._label = {"model_name": service.model}

    def collect(self) -> "Iterator[Metric]":
        """All families."""
        stats = self._service.engine.stats()
        yield from self._gauges(stats)
        yield from self._counters(stats)
        for field, (name, help) in _HISTOGRAMS.items():
            yield self._histogram(f"vllm:{name}", help, getattr(stats.totals, field))
        answers = CounterMetricFamily("enginesmith:http_responses", "HTTP answers.", labels=["status"])
        for status, count in sorted(self._service.lifecycle.answers.items()):
            answers.add_metric([str(status)], count)
        yield answers

    def _gauges(self, stats: "EngineStats") -> "Iterator[Metric]":
        for name, help, value in (
            ("num_requests_running", "Sequences that take part in steps.", stats.num_requests_running),
            ("num_requests_waiting", "Sequences that wait to start.", stats.num_requests_waiting),
            ("kv_cache_usage_perc", "Share of the KV cache's blocks in use, 1 is all.", stats.kv_cache_usage),
        ):
            gauge = GaugeMetricFamily(f"vllm:{name}", help, labels=list(self._label))
            gauge.add_metric(list(self._label.values()), value)
            yield gauge
        cached = GaugeMetricFamily(
            "enginesmith:kv_cache_blocks", "Blocks of a cache group by their use.", labels=["group", "state"]
        )
        for index, group in enumerate(stats.groups):
            for state in ("used", "free", "cached"):
                cached.add_metric([str(index), state], getattr(group, state))
        yield cached

    def _counters(self, stats: "EngineStats") -> "Iterator[Metric]":
        totals = stats.totals
        for name, help, value in (
            ("prompt_tokens", "Tokens of the prompts that were processed.", totals.prompt_tokens),
            ("prompt_tokens_cached", "How many of those the KV cache had.", totals.cached_tokens),
            ("generation_tokens", "Tokens generated.", totals.generation_tokens),
            ("num_preemptions", "Sequences sent back into the queue.", stats.num_preemptions),
            ("prefix_cache_queries", "Tokens looked for in the KV cache.", stats.prefix_cache_queries),
            ("prefix_cache_hits", "Tokens found there.", stats.prefix_cache_hits),
        ):
            counter = CounterMetricFamily(f"vllm:{name}", help, labels=list(self._label))
            counter.add_metric(list(self._label.values()), value)
            yield counter
        finished = CounterMetricFamily(
            "vllm:request_success", "Outputs that ended, by reason.", labels=[*self._label, "finished_reason"]
        )
        for reason, count in sorted(totals.finished_requests.items()):
            finished.add_metric([*self._label.values(), reason], count)
        yield finished

    def _histogram(self, name: str, help: str, histogram: "Histogram") -> "Metric":
        family = HistogramMetricFamily(name, help, labels=list(self._label))
        buckets, total = [], 0
        for bound, count in zip((*histogram.buckets, float("inf")), histogram.counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == float("inf") else str(bound), total))
        family.add_metric(list(self._label.values()), buckets, histogram.sum)
        return family
