"""A checkpoint on disk, opened: everything is known about it, nothing of its weights is loaded."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError, shown
from ..progress import NoProgress, Progress
from . import tokenizer_files
from .config import decoder_config, read_config, read_optional_json
from .files import exists, expanded
from .safetensors import TensorInfo
from .sizes import check_sizes
from .tensor_index import TensorReader, index_tensors


def open_checkpoint(path: str | Path, progress: Progress | None = None) -> "Checkpoint":
    """Open a Hugging Face folder, or a .gguf file (imported into the cache first, `gguf.py`).

    Raises CheckpointError where it is not a checkpoint, is damaged or incomplete, or states sizes that its weights
    cannot have. No weight is read.
    """
    folder = expanded(path)
    if not exists(folder):
        raise CheckpointError(f"{folder}: no such file or folder.")
    if not folder.is_dir():
        if folder.suffix.lower() != ".gguf":
            raise CheckpointError(f"{folder}: not a checkpoint. Give a Hugging Face model folder or a .gguf file.")
        from .gguf import import_gguf

        folder = import_gguf(folder, progress or NoProgress())
    checkpoint = Checkpoint(
        path=folder,
        config=read_config(folder),
        generation_config=read_optional_json(folder / "generation_config.json"),
        tensors=index_tensors(folder),
    )
    check_sizes(folder / "config.json", checkpoint.config, checkpoint.tensors.values())
    return checkpoint


@dataclass(frozen=True)
class Checkpoint:
    """A Hugging Face checkpoint folder. `config` and `generation_config` are raw: as the files say."""

    path: Path
    config: dict[str, Any]
    generation_config: dict[str, Any]
    tensors: dict[str, TensorInfo]
    _reader: TensorReader = field(default_factory=TensorReader, repr=False, compare=False)

    def read(self, name: str) -> np.ndarray:
        """A read-only view of a tensor in its mapped file, of its stored shape and dtype (bf16 as ml_dtypes')."""
        if name not in self.tensors:
            raise CheckpointError(f"{self.path}: no tensor named {name!r}.")
        return self._reader.read(self.tensors[name])

    @property
    def num_parameters(self) -> int:
        """Elements of all stored tensors."""
        return sum(info.nbytes // info.dtype.itemsize for info in self.tensors.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all stored tensors."""
        return sum(info.nbytes for info in self.tensors.values())

    @property
    def tokenizer_files(self) -> list[Path]:
        """The tokenizer's files, tokenizer.json first; empty where the checkpoint has none."""
        return tokenizer_files.tokenizer_files(self.path)

    @cached_property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Every token that ends a sequence: those of config.json, generation_config.json and the tokenizer."""
        stated = [
            *_ids(self.config.get("eos_token_id"), self.path / "config.json"),
            *_ids(decoder_config(self.config).get("eos_token_id"), self.path / "config.json"),
            *_ids(self.generation_config.get("eos_token_id"), self.path / "generation_config.json"),
        ]
        token = tokenizer_files.eos_token(self.path)
        named = tokenizer_files.token_id(self.path, token) if token is not None else None
        return tuple(dict.fromkeys([*stated, *([named] if named is not None else [])]))


def _ids(value: object, source: Path) -> list[int]:
    """An id, or a list of them; negative ids stand for none in old configs."""
    values: list[Any] = value if isinstance(value, list) else [] if value is None else [value]
    if any(type(item) is not int for item in values):
        raise CheckpointError(f"{source}: eos_token_id should be a number or a list of numbers, found {shown(value)}.")
    return [item for item in values if item >= 0]
