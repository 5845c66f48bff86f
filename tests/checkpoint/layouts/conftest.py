"""Opens one module stored by a quantizer, through a real checkpoint folder."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (names its dtypes to NumPy)
import numpy as np
import pytest
from safetensors.numpy import save_file

from enginesmith.checkpoint.checkpoint import Checkpoint, open_checkpoint

OpenStored = Callable[[Mapping[str, np.ndarray], Mapping[str, Any]], Checkpoint]


@pytest.fixture(scope="session")
def open_stored(tmp_path_factory: pytest.TempPathFactory) -> OpenStored:
    """open_stored(tensors of module "a", quantization_config) -> Checkpoint."""

    def opened(tensors: Mapping[str, np.ndarray], config: Mapping[str, Any]) -> Checkpoint:
        folder: Path = tmp_path_factory.mktemp("stored")
        named = {f"a.{suffix}": np.ascontiguousarray(tensor) for suffix, tensor in tensors.items()}
        save_file(named, folder / "model.safetensors", {"format": "pt"})
        (folder / "config.json").write_text(json.dumps({"model_type": "llama", "quantization_config": dict(config)}))
        return open_checkpoint(folder)

    return opened
