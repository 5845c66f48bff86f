"""What the feed tells of an engine: whose blocks are whose, and nothing of what requests say."""

import base64
import json
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from enginesmith.runtime.manifest import KvGroupKind
from enginesmith.runtime.snapshot import CacheMap, EngineStats, GroupStats, RequestBlocks
from enginesmith.runtime.statistics import Statistics
from enginesmith.serve.page.snapshot import CACHED, FIRST_HOLDER, FREE, MAX_WAITING, SHARED, snapshot

_STATS = EngineStats(
    num_requests_running=2,
    num_requests_waiting=1,
    num_preemptions=3,
    prefix_cache_queries=100,
    prefix_cache_hits=40,
    kv_cache_usage=0.5,
    block_size=16,
    groups=(GroupStats(KvGroupKind.FULL, 0, 8, 0, 0, 0),),
    totals=Statistics(),
)


def _holder(name: str, *blocks: tuple[int, ...], phase: str = "decode", index: int = 0) -> RequestBlocks:
    return RequestBlocks(name, index, phase, 20, 5, 24, 16, blocks)


def _cells(group: dict) -> list[int]:
    return np.frombuffer(base64.b64decode(group["cells"]), "<u2").tolist()


def test_blocks_and_who_holds_them() -> None:
    requests = (_holder("a", (0, 1, 2)), _holder("b", (0, 1, 5)), _holder("c", (), phase="waiting"), _holder("d", (0,)))
    shown = snapshot(_STATS, CacheMap((8,), requests, ((6, 7),)), 12.34567)
    (group,) = shown["groups"]
    a, b = FIRST_HOLDER, FIRST_HOLDER + 1
    assert _cells(group) == [SHARED, SHARED, a, FREE, FREE, b, CACHED, CACHED]
    assert (group["total"], group["used"], group["cached"], group["window"]) == (8, 4, 2, 0)
    assert sorted(group["shared"]) == [([0], [0, 1, 2]), ([1], [0, 1])]
    assert [sequence["id"] for sequence in shown["sequences"]] == ["a", "b", "d", "c"]  # holders first
    numbers = {"prompt": 20, "output": 5, "computed": 24, "cached": 16}
    assert shown["sequences"][0] == {"id": "a", "index": 0, "phase": "decode", "blocks": [3]} | numbers
    assert (shown["time"], shown["block_size"], shown["running"], shown["waiting"]) == (12.3457, 16, 2, 1)


@given(st.lists(st.sets(st.integers(0, 29), max_size=9), max_size=8))
def test_every_block_is_told_once(held: list[set[int]]) -> None:
    requests = tuple(_holder(str(place), tuple(blocks)) for place, blocks in enumerate(held))
    used = set().union(*held)
    shown = snapshot(_STATS, CacheMap((30,), requests, (tuple(set(range(20)) - used),)), 0.0)
    (group,), names = shown["groups"], [sequence["id"] for sequence in shown["sequences"]]
    together = {block: [names[place] for place in places] for blocks, places in group["shared"] for block in blocks}
    for block, cell in enumerate(_cells(group)):
        holders = [str(place) for place, blocks in enumerate(held) if block in blocks]
        if len(holders) > 1:
            assert cell == SHARED
            assert together[block] == holders
        elif holders:
            assert names[cell - FIRST_HOLDER] == holders[0]
        else:
            assert cell == (CACHED if block < 20 else FREE)
    assert together.keys() == {block for block, cell in enumerate(_cells(group)) if cell == SHARED}
    assert group["used"] == len(used)


def test_groups_have_their_own_blocks() -> None:
    stats = replace(_STATS, groups=(_STATS.groups[0], GroupStats(KvGroupKind.SLIDING_WINDOW, 64, 4, 0, 0, 0)))
    shown = snapshot(stats, CacheMap((8, 4), (_holder("a", (0, 1), (3,)),), ((), (0,))), 0.0)
    assert _cells(shown["groups"][1]) == [CACHED, FREE, FREE, FIRST_HOLDER]
    assert (shown["groups"][1]["window"], shown["sequences"][0]["blocks"]) == (64, [2, 1])


def test_what_waits_is_told_up_to_a_number() -> None:
    waiting = tuple(_holder(str(place), (), phase="waiting") for place in range(MAX_WAITING + 9))
    shown = snapshot(replace(_STATS, num_requests_waiting=len(waiting)), CacheMap((8,), waiting, ((),)), 0.0)
    assert [sequence["id"] for sequence in shown["sequences"]] == [str(place) for place in range(MAX_WAITING)]
    assert shown["waiting"] == MAX_WAITING + 9


def test_prefill_is_what_gave_no_token_of_its_own() -> None:
    totals = Statistics(generation_tokens=7)  # two requests: prompts of 30 and 10 tokens, then 3 and 2 tokens more
    for tokens in (32, 8, 2, 2, 1):
        totals.stepped(tokens)
    for seconds in (0.1, 0.2):
        totals.time_to_first_token.observe(seconds)
    shown = snapshot(replace(_STATS, totals=totals), CacheMap((8,), (), ((),)), 0.0)
    assert shown["prefill_tokens"] == 40
    assert sum(shown["time_to_first_token"]["counts"]) == 2


def test_ten_thousand_blocks_are_small() -> None:
    blocks = np.random.RandomState(0).permutation(10000).tolist()
    requests = tuple(_holder(str(place), tuple(blocks[place::64][:120])) for place in range(64))
    text = json.dumps(snapshot(_STATS, CacheMap((10000,), requests, (tuple(blocks[9000:]),)), 0.0))
    assert len(text) < 40_000
