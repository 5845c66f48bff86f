"""Which layout a checkpoint's quantized weights have, by what its config says."""

from collections.abc import Callable, Mapping
from typing import Any

from ...errors import CheckpointError
from ..checkpoint import Checkpoint
from ..config import decoder_config
from .awq import AwqLayout
from .compressed_tensors import CompressedTensorsLayout
from .fp8 import Fp8Layout
from .gptq import GptqLayout
from .layout import Layout

_LAYOUTS: dict[str, Callable[[Checkpoint, Mapping[str, Any]], Layout]] = {
    "awq": AwqLayout,
    "compressed-tensors": CompressedTensorsLayout,
    "fp8": Fp8Layout,
    "gptq": GptqLayout,
}


def layout_of(checkpoint: Checkpoint) -> Layout | None:
    """How the checkpoint's quantized weights are stored; None if it says nothing of any.

    Raises CheckpointError for a method that is not read (naming it and those that are), and for packings of a known
    method that are not.
    """
    config: Any = None
    for part in (checkpoint.config, decoder_config(checkpoint.config)):
        config = config or part.get("quantization_config") or part.get("compression_config")
    if not config:
        return None
    if not isinstance(config, dict):
        raise CheckpointError(f"{checkpoint.path}: quantization_config should be an object, found {config!r}.")
    method = str(config.get("quant_method", "unnamed")).lower()
    if method not in _LAYOUTS:
        raise CheckpointError(
            f"{checkpoint.path}: its weights are already quantized by the method {method!r}, which is not read; known: "
            f"{', '.join(_LAYOUTS)}. Use another quantization of this model, or the unquantized checkpoint."
        )
    return _LAYOUTS[method](checkpoint, config)
