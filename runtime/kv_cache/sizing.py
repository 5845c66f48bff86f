"""How many KV blocks each cache group gets, and how many sequences have room for their states."""

from ...errors import EngineError
from ...units import shown_size
from ..manifest import KvCacheSpec, KvGroup, KvGroupKind, Limits, StateSpec

MAX_BLOCKS = 1 << 22
"""Most blocks of a cache group: beyond, the books on them would take more memory than many a cache."""


def blocks_for(group: KvGroup, block_size: int, num_tokens: int, max_num_tokens: int) -> int:
    """Most blocks that a sequence of `num_tokens` ever holds at once, when a step adds at most `max_num_tokens`."""
    blocks = -(-num_tokens // block_size)
    if group.kind is KvGroupKind.FULL:
        return blocks
    visible = group.window - 1 + max_num_tokens  # before a step's first token, and the step itself
    return min(blocks, (visible + block_size - 2) // block_size + 1)  # at the worst alignment


def num_slots(state: StateSpec, kv: KvCacheSpec, limits: Limits, budget: int, source: str) -> int:
    """How many sequences can have states, within half of `budget` bytes where there is a KV cache beside them.

    Never more than max_batch_size; 0 of an engine without states. Raises EngineError when there is no room for one;
    `source` says where the budget comes from.
    """
    if not state.slot_bytes:
        return 0
    if budget < state.slot_bytes:
        raise EngineError(
            f"the states of one sequence take {shown_size(state.slot_bytes)}, but {source} is "
            f"{shown_size(max(budget, 0))}: allow more with kv_cache_memory"
        )
    share = min(budget // 2, budget - _longest_bytes(kv, limits)) if kv.groups else budget
    return max(1, min(limits.max_batch_size, share // state.slot_bytes))


def _longest_bytes(kv: KvCacheSpec, limits: Limits) -> int:
    """What a sequence of max_seq_len takes of the KV cache."""
    return sum(blocks * group.bytes_per_block for blocks, group in zip(_longest(kv, limits), kv.groups, strict=True))


def _longest(kv: KvCacheSpec, limits: Limits) -> list[int]:
    """The blocks of each group that a sequence of max_seq_len needs."""
    return [blocks_for(group, kv.block_size, limits.max_seq_len, limits.max_num_tokens) for group in kv.groups]


def num_blocks(kv: KvCacheSpec, limits: Limits, budget: int, source: str) -> list[int]:
    """Blocks for each group, in proportion to what a sequence of max_seq_len needs, within `budget` bytes.

    Never more than max_batch_size such sequences need. Raises EngineError when not even one fits; `source` says where
    the budget comes from.
    """
    if not kv.groups:
        return []
    longest, bytes_each = _longest(kv, limits), _longest_bytes(kv, limits)
    if budget < bytes_each:
        needed, had = shown_size(bytes_each), shown_size(max(budget, 0))
        if needed == had:  # a hair too little
            needed, had = f"{bytes_each} bytes", f"{budget} bytes"
        raise EngineError(
            f"one sequence of max_seq_len {limits.max_seq_len} needs {needed} of KV cache, but {source} is {had}: "
            "allow more with kv_cache_memory, or rebuild the engine with a smaller max_seq_len"
        )
    affordable = min(budget, bytes_each * limits.max_batch_size) / bytes_each
    sequences = min(affordable, MAX_BLOCKS / max(longest))
    if sequences < 1:
        raise EngineError(
            f"one sequence of max_seq_len {limits.max_seq_len} needs {max(longest)} blocks of {kv.block_size} tokens, "
            f"the limit is {MAX_BLOCKS}: rebuild the engine with a smaller max_seq_len or a larger block size"
        )
    return [int(blocks * sequences) for blocks in longest]
