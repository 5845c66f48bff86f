"""Which cached block is given up first: TensorRT-LLM's order."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

DEFAULT_PRIORITY = 35


class Retention(NamedTuple):
    """How dear a block's content is once nobody holds the block, as in TensorRT-LLM's KvCacheRetentionConfig.

    Of two blocks the one of lower `priority`, 0 to 100, is given up first. `ttl` seconds after its last use a block's
    priority is DEFAULT_PRIORITY again; None means never.
    """

    priority: int = DEFAULT_PRIORITY
    ttl: float | None = None


class EvictionQueue:
    """Blocks in the order in which they are given up: by priority, then least recently used."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._queues: dict[int, OrderedDict[int, None]] = {}  # by priority; none is empty
        self._entries: dict[int, tuple[int, float]] = {}  # by block: its priority, and when that lapses
        self._lapses: list[tuple[float, int]] = []  # a heap; of blocks that were removed since, too

    def __len__(self) -> int:
        return len(self._entries)

    def blocks(self) -> list[int]:
        """All of them, in ascending order."""
        return sorted(self._entries)

    def push(self, block: int, retention: Retention) -> None:
        """Add a block, the most recently used one."""
        priority, ttl = retention
        lapse = math.inf if ttl is None else self._clock() + ttl
        self._entries[block] = (priority, lapse)
        self._queues.setdefault(priority, OrderedDict())[block] = None
        if ttl is None:
            return
        if len(self._lapses) >= 2 * len(self._entries):  # most of them mean nothing any more
            self._lapses = [(lapse, block) for block, (_, lapse) in self._entries.items() if lapse < math.inf]
            heapify(self._lapses)
        else:
            heappush(self._lapses, (lapse, block))

    def remove(self, block: int) -> None:
        """Take out a block, which is used again."""
        priority, _ = self._entries.pop(block)
        del self._queues[priority][block]
        if not self._queues[priority]:
            del self._queues[priority]

    def pop(self) -> int:
        """The block to give up first, taken out. The caller makes sure that there is one: IndexError otherwise."""
        if not self._entries:
            raise IndexError("no block is left to give up")
        now = self._clock()
        while self._lapses and self._lapses[0][0] <= now:
            lapse, block = heappop(self._lapses)
            if block in self._entries and self._entries[block][1] == lapse:
                self.remove(block)
                self.push(block, Retention())
        block = next(iter(self._queues[min(self._queues)]))
        self.remove(block)
        return block
