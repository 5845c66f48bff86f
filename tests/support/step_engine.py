"""Drives an engine's executor by hand: which tokens of which sequence go into a step is the test's business."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from enginesmith.runtime.engine_dir import EngineDir, open_engine
from enginesmith.runtime.executors.cpu import CpuExecutor
from enginesmith.runtime.executors.executor import SequenceSlice


@dataclass
class Tokens:
    """A sequence with blocks of its own in every cache group, `done` tokens of which are in the cache, and a slot."""

    tokens: list[int]
    tables: list[array]
    slot: int
    done: int = 0
    logits: list[np.ndarray] = field(default_factory=list)


class StepEngine:
    """An open engine with room for `sequences` sequences of the longest length. Close it when done."""

    def __init__(self, path: Path, *, sequences: int = 4, threads: int = 2) -> None:
        self.engine: EngineDir = open_engine(path)
        self._kv = self.engine.manifest.kv_cache
        self._per_sequence = -(-self.engine.manifest.limits.max_seq_len // self._kv.block_size)
        self._free = list(range(sequences * self._per_sequence))[::-1]
        self._blocks: dict[int, list[int]] = {}
        self._slots = list(range(sequences))[::-1]
        self.executor = CpuExecutor(
            self.engine.path, self.engine.manifest, [len(self._free)] * len(self._kv.groups), threads
        )

    def add(self, tokens: Sequence[int]) -> Tokens:
        """A new sequence. Its blocks are not neighbours, and another group's are in another order."""
        blocks = [self._free.pop() for _ in range(self._per_sequence)]
        tables = [array("i", blocks[::-1] if group % 2 else blocks) for group in range(len(self._kv.groups))]
        self._blocks[slot := self._slots.pop()] = blocks
        return Tokens(list(tokens), tables, slot)

    def remove(self, sequence: Tokens) -> None:
        """Give the sequence's blocks back, with what is written in them."""
        self._free.extend(self._blocks.pop(sequence.slot))
        self._slots.append(sequence.slot)

    def step(self, *work: tuple[Tokens, int]) -> None:
        """Feed the next `count` tokens of each sequence in one step, and keep the logits of every row."""
        slices, rows = [], 0
        for sequence, count in work:
            start, stop = sequence.done, sequence.done + count
            tables = self._visible(sequence, start)
            slices.append(SequenceSlice(array("i", sequence.tokens), start, stop, tables, sequence.slot))
            rows += count
        self.executor.step(slices, range(rows))
        logits = self.executor.logits()
        for sequence, count in work:
            sequence.logits.extend(logits[:count])
            logits = logits[count:]
            sequence.done += count

    def run(self, tokens: Sequence[int], *chunks: int) -> np.ndarray:
        """Logits [sum of chunks, vocab] of a sequence that is alone; it leaves its blocks to the next one."""
        sequence = self.add(tokens)
        for chunk in chunks:
            self.step((sequence, chunk))
        self.remove(sequence)
        return np.stack(sequence.logits)

    def greedy(self, tokens: Sequence[int], count: int) -> list[int]:
        """The next `count` tokens, each the most likely one."""
        sequence = self.add(tokens)
        self.step((sequence, len(tokens)))
        for _ in range(count - 1):
            sequence.tokens.append(int(sequence.logits[-1].argmax()))
            if len(sequence.tokens) - 1 == self.engine.manifest.model.long_rope_after:
                sequence.done = 0
            self.step((sequence, len(sequence.tokens) - sequence.done))
        self.remove(sequence)
        return [*sequence.tokens[len(tokens) :], int(sequence.logits[-1].argmax())]

    def _visible(self, sequence: Tokens, start: int) -> list[array]:
        """Block tables in which blocks wholly behind a window are already gone."""
        tables = []
        for group, table in zip(self._kv.groups, sequence.tables, strict=True):
            gone = max(0, start - group.window + 1) // self._kv.block_size if group.window else 0
            tables.append(array("i", [-1] * gone) + table[gone:])
        return tables

    def close(self) -> None:
        self.executor.close()


def logits_of(engine: Path, tokens: Sequence[int]) -> np.ndarray:
    """Logits [tokens, vocab] of a sequence that one step takes."""
    opened = StepEngine(engine)
    try:
        return opened.run(tokens, len(tokens))
    finally:
        opened.close()
