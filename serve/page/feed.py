"""Snapshots for the page's viewers: made only when one of them asks, once for all, and a few a second at most.

A viewer asks again when it has sent what it got. So one that is slow skips snapshots, and one that has stalled costs
nothing; what it holds is the snapshot that it is sending.
"""

import asyncio
import time
from typing import Protocol

from ...runtime.snapshot import CacheMap, EngineStats
from ..json_response import to_json
from .snapshot import snapshot

INTERVAL = 0.25  # seconds from one snapshot to the next


class Watched(Protocol):
    """What the feed asks of an engine; `AsyncLLM` has it."""

    def stats(self) -> EngineStats:
        """Counts of now."""
        ...

    async def cache_map(self) -> CacheMap:
        """Who holds which block, between two steps."""
        ...


class Feed:
    """The snapshots of an engine, for the viewers of one event loop."""

    def __init__(self, engine: Watched, interval: float = INTERVAL) -> None:
        self._engine, self._interval = engine, interval
        self._next: asyncio.Task[bytes] | None = None
        self._made_at = float("-inf")

    async def snapshot(self) -> bytes:
        """The next snapshot, as JSON. Raises EngineClosedError when the engine is closed or dead."""
        if self._next is None or self._next.done():
            self._next = asyncio.create_task(self._make())
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())  # if all have left
        return await asyncio.shield(self._next)  # a viewer that leaves takes nothing from the others

    async def _make(self) -> bytes:
        await asyncio.sleep(self._made_at + self._interval - time.monotonic())
        cache = await self._engine.cache_map()
        self._made_at = time.monotonic()
        return to_json(snapshot(self._engine.stats(), cache, self._made_at))
