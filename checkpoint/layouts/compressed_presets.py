"""The schemes that compressed-tensors knows by name: `config_groups` may map such a name to targets."""

from collections.abc import Mapping
from typing import Any

from ...errors import CheckpointError
from ..checkpoint import Checkpoint

_Arguments = dict[str, Any]


def _numbers(bits: int, strategy: str, kind: str = "int", **others: Any) -> _Arguments:
    return {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": True, "dynamic": False, **others}


_INT4 = _numbers(4, "group", group_size=128)
_INT8 = _numbers(8, "channel")
_INT8_TOKEN = _numbers(8, "token", dynamic=True)
_FP8_TOKEN = _numbers(8, "token", "float", dynamic=True)
_BLOCKS = _numbers(8, "block", "float", block_structure=[128, 128])
_PRESETS: dict[str, tuple[_Arguments, _Arguments | None]] = {  # weights and inputs
    "W8A16": (_INT8, None),
    "W4A16": (_INT4, None),
    "W4A16_ASYM": ({**_INT4, "symmetric": False}, None),
    "W8A8": (_INT8, _INT8_TOKEN),
    "INT8": (_INT8, _INT8_TOKEN),
    "W4A8": (_INT4, _INT8_TOKEN),
    "W4AFP8": (_INT4, _FP8_TOKEN),
    "FP8": (_numbers(8, "tensor", "float"), _numbers(8, "tensor", "float")),
    "FP8_DYNAMIC": (_numbers(8, "channel", "float"), _FP8_TOKEN),
    "FP8_BLOCK": (_BLOCKS, _numbers(8, "group", "float", group_size=128, dynamic=True)),
}


def preset(checkpoint: Checkpoint, name: str, targets: object) -> Mapping[str, Any]:
    """A group of `config_groups`, in full. Raises CheckpointError for a name that is not known."""
    found = _PRESETS.get(name.upper())
    if found is None or not isinstance(targets, list):
        raise CheckpointError(
            f"{checkpoint.path}: quantization_config.config_groups should name groups of modules, or map a scheme's "
            f"name to targets; found {name!r}: {targets!r}. Known schemes: {', '.join(_PRESETS)}."
        )
    weights, inputs = found
    if name.upper() == "W8A16" and _in_groups(checkpoint):
        weights = _numbers(8, "group", group_size=128)
    return {"targets": targets, "weights": weights, "input_activations": inputs}


def _in_groups(checkpoint: Checkpoint) -> bool:
    """Whether scales are of groups: what "W8A16" means changed with version 0.17."""
    scales = [info for name, info in checkpoint.tensors.items() if name.endswith(".weight_scale")]
    return any(len(info.shape) == 2 and info.shape[1] > 1 for info in scales)
