"""What can be evaluated: an engine, run as it would serve, or a checkpoint, run by Transformers in float32."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...checkpoint.checkpoint import Checkpoint, open_checkpoint
from ...checkpoint.config import max_positions
from ...checkpoint.layouts.registry import layout_of
from ...checkpoint.sources import resolve
from ...progress import Progress
from ...runtime.engine_dir import MANIFEST, open_engine
from ...runtime.logits import PromptRunner
from ...runtime.tokenizer import Tokenizer, load_tokenizer
from ..bind import bind_network
from ..checkpoint_tokenizer import tokenizer_of
from ..reference import forward, load_dequantized, load_reference
from ..traced_checkpoint import trace_checkpoint


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
        self.name, self.folder = str(path), path
        self.tokenizer = load_tokenizer(self._engine.tokenizer)
        manifest = self._engine.manifest
        self.vocab_size, self.max_window = manifest.model.vocab_size, manifest.limits.max_seq_len
        self._runner: PromptRunner | None = None

    def load(self, window: int, progress: Progress) -> None:
        self._runner = PromptRunner(self._engine, window)

    def logits(self, tokens: Sequence[int], rows: int) -> np.ndarray:
        if self._runner is None:
            raise RuntimeError("load it first")
        return self._runner.logits(tokens, rows)

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()


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


def _load(checkpoint: Checkpoint, length: int, progress: Progress) -> Any:
    """The torch module with the checkpoint's weights. Raises BuildError where Transformers cannot take them."""
    layout = layout_of(checkpoint)
    if layout is None:
        return load_reference(checkpoint)
    network, _ = trace_checkpoint(checkpoint, length, progress)
    return load_dequantized(bind_network(network, checkpoint, layout))
