"""How a checkpoint says that it is quantized, and by what: one clear error for what is not read."""

import numpy as np
import pytest

from enginesmith.checkpoint.layouts.registry import layout_of
from enginesmith.errors import CheckpointError

TENSORS = {"weight": np.zeros((2, 2), np.float32)}


@pytest.mark.parametrize("method", ["bitsandbytes", "hqq", "aqlm", "quanto", "eetq", "higgs", "auto-round", "mxfp4"])
def test_methods_that_are_not_read(open_stored, method: str) -> None:
    with pytest.raises(CheckpointError, match=f"quantized by the method '{method}', which is not read; known: awq, "):
        layout_of(open_stored(TENSORS, {"quant_method": method}))


@pytest.mark.parametrize(
    ("config", "method"),
    [({"load_in_4bit": True}, "bitsandbytes"), ({"bits": 4}, "unnamed"), ({"quant_method": 3}, "3")],
)
def test_methods_that_are_not_named(open_stored, config: dict, method: str) -> None:
    with pytest.raises(CheckpointError, match=f"by the method '{method}', which is not read"):
        layout_of(open_stored(TENSORS, config))


def test_a_quantization_told_of_elsewhere(open_stored) -> None:
    checkpoint = open_stored(TENSORS, {})
    assert layout_of(checkpoint) is None
    (checkpoint.path / "hf_quant_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"by the method 'modelopt \(hf_quant_config.json\)', which is not read"):
        layout_of(checkpoint)
