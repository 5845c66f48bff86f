"""Logits of whole prompts, for the build's check and for tests."""

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import RequestError, shown
from .engine import Engine
from .executors.executor import SequenceSlice
from .kv_cache.manager import SequenceBlocks

if TYPE_CHECKING:
    import numpy as np


def compute_logits(engine: Engine, token_ids: Sequence[int], chunks: Sequence[int] | None = None) -> "np.ndarray":
    """Logits after each token of a prompt, float32 [len(token_ids), vocab_size].

    The prompt is processed in steps of `chunks` tokens, which must add up to it; by default in the fewest steps. Raises
    RequestError for a prompt or chunk the engine cannot take; token ids must be known to be in the vocabulary.
    """
    longest, most = engine.limits.max_seq_len, engine.limits.max_num_tokens
    if not 1 <= len(token_ids) <= longest:
        raise RequestError(f"token_ids must be 1 to {longest} tokens (the engine's max_seq_len), got {len(token_ids)}")
    if chunks is None:
        chunks = [min(most, len(token_ids) - start) for start in range(0, len(token_ids), most)]
    for chunk in chunks:
        if type(chunk) is not int or not 1 <= chunk <= most:
            raise RequestError(
                f"chunks must be integers in [1, {most}] (the engine's max_num_tokens), got {shown(chunk)}"
            )
    if sum(chunks) != len(token_ids):
        raise RequestError(f"chunks add up to {sum(chunks)} tokens, the prompt has {len(token_ids)}")
    return compute_logits_together(engine, [token_ids], [{0: chunk} for chunk in chunks])[0]


def compute_logits_together(
    engine: Engine, prompts: Sequence[Sequence[int]], steps: Sequence[dict[int, int]]
) -> list["np.ndarray"]:
    """Logits of several prompts in shared steps, float32 [len, vocab_size] for each prompt.

    Each step maps indices of prompts to how many of their tokens it processes. A step that is asked for more rows than
    the engine keeps is run again for the others: it writes the same keys and values.
    """
    import numpy as np

    with engine.lend_cache() as kv:
        sequences = [_Sequence(array("i", prompt), kv.new_sequence()) for prompt in prompts]
        try:
            for step in steps:
                _run_step(engine, sequences, step)
        finally:
            for sequence in sequences:
                kv.free(sequence.blocks)
    return [np.concatenate(sequence.logits) for sequence in sequences]


class _Sequence:
    def __init__(self, token_ids: array, blocks: SequenceBlocks) -> None:
        self.token_ids = token_ids
        self.blocks = blocks
        self.done = 0
        self.logits: list[np.ndarray] = []


def _run_step(engine: Engine, sequences: Sequence[_Sequence], step: dict[int, int]) -> None:
    import numpy as np

    slices = []
    for index, count in step.items():
        sequence = sequences[index]
        start, stop = sequence.done, sequence.done + count
        if not engine.kv.reserve(sequence.blocks, start, stop):
            raise RequestError(f"the KV cache has no room for {stop} tokens: allow more with kv_cache_memory")
        slices.append(SequenceSlice(sequence.token_ids, start, stop, sequence.blocks.tables))
    total, most = sum(step.values()), engine.limits.max_batch_size
    parts = []
    for first in range(0, total, most):
        engine.executor.step(slices, range(first, min(first + most, total)))
        parts.append(engine.executor.logits())
    ends = np.cumsum(list(step.values()))
    for index, logits in zip(step, np.split(np.concatenate(parts), ends[:-1]), strict=True):
        sequences[index].logits.append(logits)
        sequences[index].done += step[index]
