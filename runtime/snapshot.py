"""What can be seen of a serving engine from outside: counts at any time, and the KV cache as a map."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from .kv_cache.manager import FREED
from .manifest import KvGroupKind
from .statistics import Histogram, Statistics

if TYPE_CHECKING:
    from .engine import Engine
    from .request import Request


@dataclass(frozen=True, slots=True)
class GroupStats:
    """Blocks of one cache group: `total` = `used` + `free`; of the free ones `cached` can still be found by content."""

    kind: KvGroupKind
    window: int
    total: int
    used: int
    free: int
    cached: int


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A moment of the engine, and its totals since it was opened."""

    num_requests_running: int
    num_requests_waiting: int
    num_preemptions: int
    prefix_cache_queries: int
    """Tokens of the requests that started; of those that started again, too."""
    prefix_cache_hits: int
    """How many of them were in the cache."""
    kv_cache_usage: float
    """The largest share of a group's blocks in use, 0 to 1."""
    block_size: int
    groups: tuple[GroupStats, ...]
    totals: Statistics


@dataclass(frozen=True, slots=True)
class RequestBlocks:
    """A request's place in the engine. `blocks[g]`: ids in cache group g, of those that it holds, in order."""

    request_id: str
    index: int
    phase: str
    """waiting, prefill or decode."""
    prompt_tokens: int
    output_tokens: int
    computed_tokens: int
    cached_tokens: int
    blocks: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class CacheMap:
    """Who holds which block. A block that several requests list is shared; `cached[g]` are held by none, but kept."""

    totals: tuple[int, ...]
    requests: tuple[RequestBlocks, ...]
    cached: tuple[tuple[int, ...], ...]


def engine_stats(engine: "Engine", block_size: int, num_arriving: int) -> EngineStats:
    """Counts of now, from any thread: nothing is iterated over that a step may change."""
    scheduler, pools = engine.scheduler, engine.kv.pools
    return EngineStats(
        num_requests_running=len(scheduler.running),
        num_requests_waiting=len(scheduler.unfinished) - len(scheduler.running) + num_arriving,
        num_preemptions=scheduler.num_preemptions,
        prefix_cache_queries=scheduler.prefix_cache_queries,
        prefix_cache_hits=scheduler.prefix_cache_hits,
        kv_cache_usage=engine.kv.usage,
        block_size=block_size,
        groups=tuple(
            GroupStats(spec.kind, spec.window, pool.num_blocks, pool.num_blocks - free, free, pool.num_cached)
            for spec, pool in zip(engine.kv.specs, pools, strict=True)
            for free in (pool.num_free,)
        ),
        totals=_copied(engine.statistics),
    )


def cache_map(engine: "Engine") -> CacheMap:
    """Made between two steps."""
    unfinished = sorted(engine.scheduler.unfinished, key=lambda request: request.queue_key)
    pools = engine.kv.pools
    return CacheMap(
        totals=tuple(pool.num_blocks for pool in pools),
        requests=tuple(_blocks_of(request) for request in unfinished),
        cached=tuple(tuple(pool.cached_blocks()) for pool in pools),
    )


def _blocks_of(request: "Request") -> RequestBlocks:
    phase = request.status.value
    if phase == "running":
        phase = "decode" if request.num_computed >= request.prompt_length else "prefill"
    return RequestBlocks(
        request_id=request.request_id,
        index=request.index,
        phase=phase,
        prompt_tokens=request.prompt_length,
        output_tokens=request.num_output,
        computed_tokens=request.num_computed,
        cached_tokens=request.metrics.num_cached_tokens,
        blocks=tuple(tuple(block for block in table if block != FREED) for table in request.blocks.tables),
    )


def _copied(statistics: Statistics) -> Statistics:
    copied = {}
    for field in fields(statistics):
        value = getattr(statistics, field.name)
        copied[field.name] = value.copy() if isinstance(value, Histogram | dict) else value
    return Statistics(**copied)
