"""Snapshots are made for those who ask, once for all of them, and not more often than the interval allows."""

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from enginesmith.errors import EngineClosedError
from enginesmith.runtime.snapshot import CacheMap, EngineStats
from enginesmith.runtime.statistics import Statistics
from enginesmith.serve.page.feed import Feed

INTERVAL = 0.05


class _Engine:
    """Counts how often it is looked at."""

    def __init__(self) -> None:
        self.looks: list[float] = []
        self.closed = False

    def stats(self) -> EngineStats:
        return EngineStats(0, 0, 0, 0, 0, 0.0, 16, (), Statistics(num_steps=len(self.looks)))

    async def cache_map(self) -> CacheMap:
        if self.closed:
            raise EngineClosedError("closed")
        self.looks.append(time.monotonic())
        return CacheMap((), (), ())


def _run(scenario: Callable[[_Engine, Feed], Coroutine[Any, Any, None]]) -> _Engine:
    engine = _Engine()

    async def main() -> None:
        await asyncio.wait_for(scenario(engine, Feed(engine, INTERVAL)), 20)

    asyncio.run(main())
    return engine


def test_one_snapshot_for_all_viewers() -> None:
    async def scenario(engine: _Engine, feed: Feed) -> None:
        for number in range(1, 4):
            shown = await asyncio.gather(*(feed.snapshot() for _ in range(50)))
            assert {json.loads(one)["steps"] for one in shown} == {number}

    looks = _run(scenario).looks
    assert len(looks) == 3
    assert all(later - earlier >= 0.9 * INTERVAL for earlier, later in pairwise(looks))


def test_nothing_is_made_when_nobody_asks() -> None:
    async def scenario(engine: _Engine, feed: Feed) -> None:
        await feed.snapshot()
        await asyncio.sleep(4 * INTERVAL)
        assert len(engine.looks) == 1
        await feed.snapshot()
        assert len(engine.looks) == 2

    _run(scenario)


def test_a_slow_viewer_gets_the_newest_and_holds_nobody_up() -> None:
    async def scenario(engine: _Engine, feed: Feed) -> None:
        await feed.snapshot()
        for _ in range(5):  # the others, while it does not ask
            await feed.snapshot()
        assert json.loads(await feed.snapshot())["steps"] == 7

    _run(scenario)


def test_a_viewer_that_leaves_takes_nothing_from_the_others() -> None:
    async def scenario(engine: _Engine, feed: Feed) -> None:
        await feed.snapshot()
        leaves, stays = asyncio.create_task(feed.snapshot()), asyncio.create_task(feed.snapshot())
        await asyncio.sleep(INTERVAL / 4)
        leaves.cancel()
        assert json.loads(await stays)["steps"] == 2
        assert leaves.cancelled()

    _run(scenario)


def test_a_closed_engine_is_told_to_every_viewer() -> None:
    async def scenario(engine: _Engine, feed: Feed) -> None:
        engine.closed = True
        for _ in range(2):
            told = await asyncio.gather(feed.snapshot(), feed.snapshot(), return_exceptions=True)
            assert [type(one) for one in told] == [EngineClosedError] * 2
        engine.closed = False
        assert await feed.snapshot()

    _run(scenario)


def test_an_error_that_no_viewer_waits_for_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(engine: _Engine, feed: Feed) -> None:
        await feed.snapshot()
        engine.closed = True
        waits = asyncio.create_task(feed.snapshot())
        await asyncio.sleep(INTERVAL / 4)
        waits.cancel()
        await asyncio.sleep(2 * INTERVAL)

    _run(scenario)
    assert not caplog.records
