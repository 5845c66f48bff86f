"""What a checkpoint says of its quantization, in config.json or in the file that older quantizers wrote beside it.

Facts that are stated twice must agree: which of two is right, nothing tells.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ...errors import CheckpointError, shown
from ..checkpoint import Checkpoint
from ..config import decoder_config, read_optional_json

# Files of AutoGPTQ and of AutoAWQ, and the method that is meant where they name none.
_BESIDE = {"quantize_config.json": "gptq", "quant_config.json": "awq"}
_PACKED = ".qweight"

# Facts that any two descriptions may share, by their names.
_FACTS: dict[tuple[str, ...], Callable[[Any], object]] = {
    ("quant_method",): lambda value: str(value).lower(),
    ("bits", "w_bit"): lambda value: value,
    ("group_size", "q_group_size"): lambda value: value if isinstance(value, int) and value > 0 else "the whole",
    ("sym",): bool,
    ("desc_act",): bool,
    ("zero_point",): bool,
    ("checkpoint_format", "format"): lambda value: str(value).lower(),
    ("version",): lambda value: str(value).lower(),
}


def stated_quantization(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """The `quantization_config`, in full; None where nothing is said of any.

    A file beside config.json counts where tensors are packed, and fills in what config.json leaves out. Raises
    CheckpointError where two descriptions disagree, or one is no object.
    """
    found: dict[str, dict[str, Any]] = {}
    for part, config in (("", checkpoint.config), ("text_config.", decoder_config(checkpoint.config))):
        for key in ("quantization_config", "compression_config"):
            if stated := config.get(key):
                if not isinstance(stated, dict):
                    raise CheckpointError(f"{checkpoint.path}: {key} should be an object, found {shown(stated)}.")
                found.setdefault(f"config.json ({part}{key})", stated)
    if any(name.endswith(_PACKED) for name in checkpoint.tensors):
        for name, method in _BESIDE.items():
            if stated := read_optional_json(checkpoint.path / name):
                found[name] = {"quant_method": method} | {
                    key: value for key, value in stated.items() if value is not None
                }
    _see_that_they_agree(checkpoint, found)
    merged: dict[str, Any] = {}
    for stated in reversed(found.values()):
        merged |= stated
    return merged or None


def _see_that_they_agree(checkpoint: Checkpoint, found: Mapping[str, Mapping[str, Any]]) -> None:
    for names, read in _FACTS.items():
        said: dict[str, object] = {}
        for source, stated in found.items():
            value = next((stated[name] for name in names if stated.get(name) is not None), None)
            if value is not None:
                said[source] = read(value)
        first = next(iter(said), "")
        for source, value in said.items():
            if value != said[first]:
                raise CheckpointError(
                    f"{checkpoint.path} contradicts itself: of {names[0]}, {first} says {shown(said[first])}, {source} "
                    f"{shown(value)}. Remove the one that is wrong, or download the checkpoint again."
                )
