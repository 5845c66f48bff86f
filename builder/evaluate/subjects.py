"""What can be evaluated: an engine, run as it would serve, or a checkpoint, run by Transformers in float32."""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...checkpoint.checkpoint import Checkpoint, open_checkpoint
from ...checkpoint.config import max_positions
from ...checkpoint.layouts.registry import layout_of
from ...checkpoint.sources import resolve
from ...progress import Progress
from ...runtime.engine_dir import MANIFEST, open_engine
from ...runtime.executors.executor import Executor, SequenceSlice
from ...runtime.executors.registry import open_executor
from ...runtime.tokenizer import Tokenizer, load_tokenizer
from ..bind import bind_network
from ..checkpoint_tokenizer import tokenizer_of
from ..reference import forward, load_dequantized, load_reference


class Subject(ABC):
    """A model whose logits can be asked for once it is loaded.

    `max_window`: the longest sequence it takes, None where it states no limit. `vocab_size`: columns of its logits.
    """

    name: str
    folder: Path
    tokenizer: Tokenizer
    max_window: int | None
    vocab_size: int

    @abstractmethod
    def load(self, window: int, progress: Progress) -> None:
        """Make ready for sequences of up to `window` tokens."""

    @abstractmethod
    def logits(self, tokens: Sequence[int], rows: int) -> np.ndarray:
        """Logits after each of the last `rows` tokens of a sequence, float32 [rows, vocab_size]."""

    @abstractmethod
    def close(self) -> None:
        """Free what it holds."""


class EngineSubject(Subject):
    """An engine folder, run as it would serve: rounded activations, quantized KV cache and all."""

    def __init__(self, path: Path) -> None:
        self._engine = open_engine(path)
        self._kv, self._limits = self._engine.manifest.kv_cache, self._engine.manifest.limits
        self.name, self.folder = str(path), path
        self.tokenizer = load_tokenizer(self._engine.tokenizer)
        self.vocab_size, self.max_window = self._engine.manifest.model.vocab_size, self._limits.max_seq_len
        self._executor: Executor | None = None
        self._tables: list[array] = []

    def load(self, window: int, progress: Progress) -> None:
        blocks, groups = -(-window // self._kv.block_size), len(self._kv.groups)
        self._tables = [array("i", range(blocks))] * groups
        self._executor = open_executor(self._engine.path, self._engine.manifest, [blocks] * groups)

    def logits(self, tokens: Sequence[int], rows: int) -> np.ndarray:
        """Context goes in large steps without logits, then as many tokens a step as it keeps rows of logits."""
        if self._executor is None:
            raise RuntimeError("load it first")
        ids, context = array("i", tokens), len(tokens) - rows
        for first, stop in _steps(0, context, self._limits.max_num_tokens):
            self._executor.step([SequenceSlice(ids, first, stop, self._tables)], ())
        found = np.empty((rows, self.vocab_size), np.float32)
        most = min(self._limits.max_batch_size, self._limits.max_num_tokens)
        for first, stop in _steps(context, len(tokens), most):
            self._executor.step([SequenceSlice(ids, first, stop, self._tables)], range(stop - first))
            found[first - context : stop - context] = self._executor.logits()
        return found

    def close(self) -> None:
        if self._executor is not None:
            self._executor.close()


class CheckpointSubject(Subject):
    """A checkpoint's own Transformers class, in float32; a quantized one's with the weights its integers stand for."""

    model: Any  # the torch module, once it is loaded

    def __init__(self, source: str | Path, progress: Progress) -> None:
        self.checkpoint = open_checkpoint(resolve(source, progress), progress)
        self.name, self.folder = str(source), self.checkpoint.path
        self.tokenizer = tokenizer_of(self.folder)
        self.max_window = max_positions(self.checkpoint.config)
        self.model = None

    def load(self, window: int, progress: Progress) -> None:
        with progress.task(f"load {self.folder.name}"):
            self.model = _load(self.checkpoint, window, progress)
        self.vocab_size = int(self.model.get_output_embeddings().weight.shape[0])

    def logits(self, tokens: Sequence[int], rows: int) -> np.ndarray:
        return forward(self.model, tokens, logits_to_keep=rows)[-rows:]

    def close(self) -> None:
        self.model = None


def open_subject(source: str | Path, progress: Progress) -> Subject:
    """The engine folder, or the checkpoint, that `source` names."""
    path = Path(source).expanduser()
    return EngineSubject(path) if (path / MANIFEST).is_file() else CheckpointSubject(source, progress)


def _steps(first: int, last: int, size: int) -> Iterator[tuple[int, int]]:
    for start in range(first, last, size):
        yield start, min(start + size, last)


def _load(checkpoint: Checkpoint, length: int, progress: Progress) -> Any:
    """The torch module with the checkpoint's weights. Raises BuildError where Transformers cannot take them."""
    layout = layout_of(checkpoint)
    if layout is None:
        return load_reference(checkpoint)
    from ..trace.trace import trace

    network = trace(checkpoint.config, max_seq_len=length, progress=progress)
    return load_dequantized(bind_network(network, checkpoint, layout))
