"""The arrays that a step hands to the device: one buffer, so that one copy takes them there."""

import ctypes
from array import array
from collections.abc import Callable, Sequence

from ....errors import EngineError
from ...manifest import LONG_ROPE, Limits
from ..executor import SequenceSlice
from .launches import Count

_ALIGNED = 64  # int32 elements: 256 bytes


class StepInputs:
    """int32 arrays as long as the limits allow, in a buffer of `memory(bytes)`, by default of its own.

    token_seq [T]: the sequence of each token, -1 in padding; block_table [groups, max_batch_size, columns]; the others
    are those of a step of the CPU. Padding sequences have a context of 0 and one token.
    """

    def __init__(
        self,
        limits: Limits,
        block_size: int,
        num_groups: int,
        long_rope_after: int | None,
        memory: Callable[[int], int] | None = None,
    ) -> None:
        self._limits, self._long_rope_after = limits, long_rope_after
        self._groups = range(num_groups)
        self.columns = -(-limits.max_seq_len // block_size)
        tokens, sequences = limits.max_num_tokens, limits.max_batch_size
        lengths = {
            "query_start": sequences + 1,
            "context_length": sequences,
            "logits_rows": limits.max_logits_rows,
            "input_ids": tokens,
            "position_ids": tokens,
            "token_seq": tokens,
            "block_table": num_groups * sequences * self.columns,
        }
        self._offsets, end = {}, 0
        for name, length in lengths.items():
            self._offsets[name] = end
            end += -(-length // _ALIGNED) * _ALIGNED
        self.nbytes = 4 * end
        self._own = array("i", bytes(4 * end)) if memory is None else array("i")
        self.address: int = self._own.buffer_info()[0] if memory is None else memory(self.nbytes)
        integers = (ctypes.c_int32 * end).from_address(self.address)
        self._data = memoryview(integers).cast("B").cast("i")
        self._numbers = array("i", range(max(tokens, sequences) + 1))
        self._positions = array("i", range(limits.max_seq_len))
        self._long_positions = array("i", range(LONG_ROPE, LONG_ROPE + limits.max_seq_len))

    def offset(self, name: str, group: int = 0) -> int:
        """Where an array begins, in bytes; of the block tables, that of a group."""
        table = group * self._limits.max_batch_size * self.columns
        return 4 * (self._offsets[name] + table)

    def fill(self, slices: Sequence[SequenceSlice], logits_rows: Sequence[int], padded: int = 0) -> dict[Count, int]:
        """Fill in a step, and count it. `padded`: of a step of one token a sequence, as how many it shall count."""
        if padded:
            return self._fill_decodes(slices, padded)
        end, longest = 0, 1
        for number, (token_ids, start, stop, tables, _) in enumerate(slices):
            begin, end = end, end + stop - start
            self._check(number + 1, end, start, stop, len(logits_rows))
            longest = max(longest, stop - start)
            self._put("query_start", number, begin)
            self._put("context_length", number, stop)
            self._copy("input_ids", begin, token_ids[start:stop])
            self._copy("position_ids", begin, self._positions_of(token_ids)[start:stop])
            self._copy("token_seq", begin, array("i", [number]) * (stop - start))
            self._copy_tables(number, tables)
        self._put("query_start", len(slices), end)
        self._copy("logits_rows", 0, array("i", logits_rows))
        return {Count.TOKENS: end, Count.ROWS: len(logits_rows), Count.SEQUENCES: len(slices), Count.QUERIES: longest}

    def _fill_decodes(self, slices: Sequence[SequenceSlice], padded: int) -> dict[Count, int]:
        """A step of one token a sequence, all at once: what a sequence costs is what the host costs while decoding."""
        sequences = len(slices)
        for number, (_, start, stop, tables, _) in enumerate(slices):
            self._check(number + 1, number + 1, start, stop, sequences)
            self._copy_tables(number, tables)
        none = array("i", bytes(4 * (padded - sequences)))
        self._copy("context_length", 0, array("i", [item.stop for item in slices]) + none)
        self._copy("input_ids", 0, array("i", [item.token_ids[item.start] for item in slices]) + none)
        positions = [self._positions_of(item.token_ids)[item.start] for item in slices]
        self._copy("position_ids", 0, array("i", positions) + none)
        self._copy("logits_rows", 0, self._numbers[:sequences] + none)
        self._copy("query_start", 0, self._numbers[: padded + 1])
        self._copy("token_seq", 0, self._numbers[:sequences] + array("i", [-1]) * len(none))
        return {Count.TOKENS: padded, Count.ROWS: padded, Count.SEQUENCES: padded, Count.QUERIES: 1}

    def _copy_tables(self, number: int, tables: Sequence[array]) -> None:
        for group in self._groups:
            self._copy("block_table", (group * self._limits.max_batch_size + number) * self.columns, tables[group])

    def _put(self, name: str, index: int, value: int) -> None:
        self._data[self._offsets[name] + index] = value

    def _copy(self, name: str, index: int, values: array) -> None:
        first = self._offsets[name] + index
        self._data[first : first + len(values)] = values

    def _positions_of(self, token_ids: array) -> array:
        """All positions, as a sequence of these tokens has them."""
        is_long = self._long_rope_after is not None and len(token_ids) > self._long_rope_after
        return self._long_positions if is_long else self._positions

    def _check(self, sequences: int, tokens: int, start: int, stop: int, rows: int) -> None:
        """Kernels trust these sizes; a scheduler's mistake must not reach them."""
        limits = self._limits
        within = sequences <= limits.max_batch_size and tokens <= limits.max_num_tokens and stop <= limits.max_seq_len
        if not within or not 0 <= start < stop or rows > limits.max_logits_rows:
            raise EngineError(
                f"a step of {sequences} sequences, {tokens} tokens, to position {stop}, with {rows} rows of logits "
                f"exceeds {limits}"
            )
