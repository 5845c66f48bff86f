"""Makes small checkpoint folders, with the safetensors library rather than with our own writer."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

MakeCheckpoint = Callable[..., Path]


@pytest.fixture
def make_checkpoint(tmp_path: Path) -> MakeCheckpoint:
    """make_checkpoint(tensors, config={...}, files={name: text or JSON value}, shards=n) -> folder."""

    def make(
        tensors: Mapping[str, np.ndarray],
        config: Mapping[str, object] | None = None,
        files: Mapping[str, object] | None = None,
        shards: int = 0,
    ) -> Path:
        folder = tmp_path / "model"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": "llama", **(config or {})}))
        for name, content in (files or {}).items():
            (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
        if shards:
            _save_shards(folder, dict(tensors), shards)
        else:
            save_file(dict(tensors), folder / "model.safetensors", {"format": "pt"})
        return folder

    return make


def _save_shards(folder: Path, tensors: dict[str, np.ndarray], shards: int) -> None:
    weight_map = {}
    for index in range(shards):
        name = f"model-{index + 1:05}-of-{shards:05}.safetensors"
        part = dict(list(tensors.items())[index::shards])
        save_file(part, folder / name)
        weight_map |= dict.fromkeys(part, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
