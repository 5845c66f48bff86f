"""Logits of whole prompts: for the build's check, evaluation, and `LLM.compute_logits`."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from ..errors import RequestError, shown
from .engine import Engine
from .engine_dir import EngineDir
from .executors.executor import Executor, SequenceSlice
from .executors.registry import open_executor
from .manifest import Limits

if TYPE_CHECKING:
    import numpy as np


def compute_logits(
    engine: Engine,
    token_ids: Sequence[int],
    chunks: Sequence[int] | None = None,
    given_up: Callable[[], bool] = lambda: False,
) -> "np.ndarray":
    """Logits after each token of a prompt, float32 [len(token_ids), vocab_size].

    The prompt is processed in steps of `chunks` tokens, which must add up to it; by default in steps of as many rows as
    the engine keeps, and no further once `given_up`. Raises RequestError for a prompt or chunk the engine cannot take;
    token ids must be known to be in the vocabulary.
    """
    longest, most = engine.limits.max_seq_len, engine.limits.max_num_tokens
    if not 1 <= len(token_ids) <= longest:
        raise RequestError(f"token_ids must be 1 to {longest} tokens (the engine's max_seq_len), got {len(token_ids)}")
    for chunk in chunks or ():
        if type(chunk) is not int or not 1 <= chunk <= most:
            raise RequestError(
                f"chunks must be integers in [1, {most}] (the engine's max_num_tokens), got {shown(chunk)}"
            )
    if chunks is not None and sum(chunks) != len(token_ids):
        raise RequestError(f"chunks add up to {sum(chunks)} tokens, the prompt has {len(token_ids)}")
    kv, blocks = engine.kv, engine.kv.new_sequence()

    def reserve(ids: array, start: int, stop: int) -> SequenceSlice:
        if given_up():
            raise RequestError("the caller gave the prompt up")
        if not kv.reserve(blocks, start, stop):
            raise RequestError(f"the KV cache has no room for {stop} tokens: allow more with kv_cache_memory")
        return SequenceSlice(ids, start, stop, blocks.tables, blocks.slot)

    if chunks is not None and kv.has_states:  # which no step can be run again with
        most = engine.limits.max_batch_size
        chunks = [min(most, chunk - done) for chunk in chunks for done in range(0, chunk, most)]
    try:
        return _run(engine.executor, engine.limits, token_ids, len(token_ids), reserve, chunks)
    finally:
        kv.free(blocks)


class PromptRunner:
    """An engine folder opened for one prompt at a time, of up to `length` tokens. Close it when done."""

    def __init__(self, engine: EngineDir, length: int) -> None:
        self._limits, kv = engine.manifest.limits, engine.manifest.kv_cache
        blocks = -(-length // kv.block_size)
        self._tables = [array("i", range(blocks))] * len(kv.groups)
        self._executor = open_executor(engine.path, engine.manifest, [blocks] * len(kv.groups))

    def logits(self, token_ids: Sequence[int], rows: int | None = None) -> "np.ndarray":
        """Logits after each of the last `rows` tokens of a prompt (default: all), float32 [rows, vocab_size]."""
        wanted = len(token_ids) if rows is None else rows

        def reserved(ids: array, start: int, stop: int) -> SequenceSlice:
            return SequenceSlice(ids, start, stop, self._tables)

        return _run(self._executor, self._limits, token_ids, wanted, reserved)

    def close(self) -> None:
        """Free the engine."""
        self._executor.close()

    def __enter__(self) -> "PromptRunner":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _run(
    executor: Executor,
    limits: Limits,
    token_ids: Sequence[int],
    rows: int,
    reserve: Callable[[array, int, int], SequenceSlice],
    chunks: Sequence[int] | None = None,
) -> "np.ndarray":
    """Logits after each of the last `rows` tokens; `reserve(ids, start, stop)` makes room for tokens.

    A step that is asked for more rows than the engine keeps is run again for the others: it writes the same keys and
    values. With states none may be.
    """
    import numpy as np

    ids, context, start = array("i", token_ids), len(token_ids) - rows, 0
    parts = []
    for chunk in _chunks(limits, context, rows) if chunks is None else chunks:
        stop = start + chunk
        work = [reserve(ids, start, stop)]
        if stop <= context:
            executor.step(work, ())
        for row in range(max(0, context - start), chunk, limits.max_batch_size):
            executor.step(work, range(row, min(row + limits.max_batch_size, chunk)))
            parts.append(executor.logits())
        start = stop
    return np.concatenate(parts)


def _chunks(limits: Limits, context: int, rows: int) -> Iterator[int]:
    """Context in large steps without logits, then as many tokens a step as it keeps rows of logits."""
    for count, most in ((context, limits.max_num_tokens), (rows, min(limits.max_batch_size, limits.max_num_tokens))):
        for start in range(0, count, most):
            yield min(most, count - start)
