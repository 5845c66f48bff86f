"""A moment of the engine as the page reads it: counts, the sequences with their lengths, and whose the blocks are.

Nothing of what a request says is in it. A block takes two bytes, so that the size is that of the cache, however mixed
its blocks are.
"""

import base64
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ...runtime.snapshot import CacheMap, EngineStats, GroupStats, RequestBlocks
    from ...runtime.statistics import Histogram, Statistics

FREE, CACHED, SHARED, FIRST_HOLDER = 0, 1, 2, 3
MAX_WAITING = 64  # of the sequences that wait, so many are told one by one


def snapshot(stats: "EngineStats", cache: "CacheMap", now: float) -> dict[str, Any]:
    """What a page shows, ready for JSON. `now`: seconds on any steady clock, from which the page takes its rates."""
    holders = [request for request in cache.requests if any(request.blocks)]
    waiting = [request for request in cache.requests if not any(request.blocks)]
    totals = stats.totals
    return {
        "time": round(now, 4),
        "block_size": stats.block_size,
        "groups": [_group(group, cache, holders, index) for index, group in enumerate(stats.groups)],
        "sequences": [_sequence(request) for request in (*holders, *waiting[:MAX_WAITING])],
        "running": stats.num_requests_running,
        "waiting": stats.num_requests_waiting,
        "preemptions": stats.num_preemptions,
        "prefix_queries": stats.prefix_cache_queries,
        "prefix_hits": stats.prefix_cache_hits,
        "steps": totals.num_steps,
        "prefill_tokens": _prefill_tokens(totals),
        "generation_tokens": totals.generation_tokens,
        "finished": dict(totals.finished_requests),
        "time_to_first_token": _histogram(totals.time_to_first_token),
        "inter_token_latency": _histogram(totals.inter_token_latency),
    }


def _prefill_tokens(totals: "Statistics") -> int:
    """Tokens processed that were not a sequence's newest: each of those gave a token, and each first token came of a
    prompt.
    """
    decoded = totals.generation_tokens - sum(totals.time_to_first_token.counts)
    return int(totals.iteration_tokens.sum) - decoded


def _group(group: "GroupStats", cache: "CacheMap", holders: "list[RequestBlocks]", index: int) -> dict[str, Any]:
    """A cache group. `cells`: base64 of a little-endian uint16 a block: FREE, CACHED, SHARED, or FIRST_HOLDER and the
    place in `sequences` of the one that holds it. `shared`: [blocks, their holders] of all that have several.
    """
    total = cache.totals[index]
    held = [np.asarray(request.blocks[index], np.int64) for request in holders]
    cells, counts = np.full(total, FREE, "<u2"), np.zeros(total, np.int64)
    cells[list(cache.cached[index])] = CACHED
    for place, blocks in enumerate(held):
        cells[blocks] = FIRST_HOLDER + place
        counts[blocks] += 1
    cells[counts > 1] = SHARED
    return {
        "kind": str(group.kind),
        "window": group.window,
        "total": total,
        "used": int(np.count_nonzero(counts)),
        "cached": len(cache.cached[index]),
        "cells": base64.b64encode(cells.tobytes()).decode(),
        "shared": _shared(held, counts),
    }


def _shared(held: list[np.ndarray], counts: np.ndarray) -> list[tuple[list[int], list[int]]]:
    """Blocks that have several holders, put together by who these are."""
    holders: dict[int, list[int]] = defaultdict(list)
    for place, blocks in enumerate(held):
        for block in blocks[counts[blocks] > 1].tolist():
            holders[block].append(place)
    together: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for block, places in holders.items():
        together[tuple(places)].append(block)
    return [(blocks, list(places)) for places, blocks in together.items()]


def _sequence(request: "RequestBlocks") -> dict[str, Any]:
    return {
        "id": request.request_id,
        "index": request.index,
        "phase": request.phase,
        "prompt": request.prompt_tokens,
        "output": request.output_tokens,
        "computed": request.computed_tokens,
        "cached": request.cached_tokens,
        "blocks": [len(blocks) for blocks in request.blocks],
    }


def _histogram(histogram: "Histogram") -> dict[str, Any]:
    return {"bounds": histogram.buckets, "counts": histogram.counts, "sum": round(histogram.sum, 6)}
