"""Tiny checkpoints whose embedding and head are two matrices, of values that a test chooses."""

import json
from pathlib import Path

import numpy as np

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def tensors_of(checkpoint: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(checkpoint / "model.safetensors")


def untied(source: Path, folder: Path, *, embedding: np.ndarray, head: np.ndarray) -> Path:
    """The model in `folder`, its embedding and head replaced by float32 [vocabulary, hidden] of each."""
    from safetensors.numpy import save_file

    folder.mkdir()
    tensors = {**tensors_of(source), EMBEDDING: embedding, HEAD: head}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    return folder
