"""An executor whose cache cells hold hashes of all that they depend on, and which looks at every cell that it reads."""

from array import array
from collections.abc import Callable, Sequence

from enginesmith.runtime.executors.executor import Draw, Sample, SequenceSlice
from enginesmith.runtime.kv_cache.manager import FREED
from enginesmith.runtime.manifest import Manifest


class ModelExecutor:
    """A network whose next token is a hash of the whole sequence. `fault` is called when a step is half written."""

    def __init__(self, manifest: Manifest) -> None:
        self._kv, self._vocab_size = manifest.kv_cache, manifest.model.vocab_size
        self._long_rope_after = manifest.model.long_rope_after
        self._cells: list[dict[int, int]] = [{} for _ in self._kv.groups]
        self._rows: list[int] = []
        self.num_computed = 0
        """Tokens computed so far."""
        self.fault: Callable[[], None] = lambda: None

    def step(self, slices: Sequence[SequenceSlice], logits_rows: Sequence[int]) -> None:
        states = [self._states(item.token_ids, item.stop) for item in slices]
        for item in slices:
            self._write(item, [-1] * item.stop)
        self.fault()
        for item, state in zip(slices, states, strict=True):
            self._write(item, state)
        for item, state in zip(slices, states, strict=True):
            self._read(item, state)
        packed = [value for item, state in zip(slices, states, strict=True) for value in state[item.start :]]
        self._rows = [packed[row] for row in logits_rows]
        self.num_computed += len(packed)

    def sample(self, draws: Sequence[Draw]) -> list[Sample]:
        return [self._sample(draw, self._rows[draw.row] % self._vocab_size) for draw in draws]

    def _sample(self, draw: Draw, likeliest: int) -> Sample:
        """What is reported of a given token tells which row it comes from."""
        return Sample(likeliest) if draw.token < 0 else Sample(draw.token, -float(likeliest), 1)

    def close(self) -> None:
        pass

    def alone(self, prompt: Sequence[int], count: int) -> list[int]:
        """What a request gets, whoever shares its batch and whatever is cached."""
        tokens = array("i", prompt)
        for _ in range(count):
            tokens.append(self._states(tokens, len(tokens))[-1] % self._vocab_size)
        return tokens[len(prompt) :].tolist()

    def _states(self, token_ids: array, stop: int) -> list[int]:
        """For each position a hash of the tokens up to it, and of the rotary frequencies."""
        state = hash(self._long_rope_after is not None and len(token_ids) > self._long_rope_after)
        return [state := hash((state, token)) & (2**61 - 1) for token in token_ids[:stop]]

    def _write(self, item: SequenceSlice, states: list[int]) -> None:
        for table, cells in zip(item.block_tables, self._cells, strict=True):
            for position in range(item.start, item.stop):
                cells[self._cell(table, position)] = states[position]

    def _read(self, item: SequenceSlice, states: list[int]) -> None:
        for group, table, cells in zip(self._kv.groups, item.block_tables, self._cells, strict=True):
            for position in range(max(0, item.start - group.window + 1) if group.window else 0, item.stop):
                assert cells[self._cell(table, position)] == states[position], "a block holds something else"

    def _cell(self, table: array, position: int) -> int:
        block = table[position // self._kv.block_size]
        assert block != FREED, "a block that is seen was given back"
        return block * self._kv.block_size + position % self._kv.block_size
