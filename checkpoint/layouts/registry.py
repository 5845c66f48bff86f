"""Which layout a checkpoint's quantized weights have, by what its config says."""

from collections.abc import Callable, Mapping
from typing import Any

from ...errors import CheckpointError, shown
from ..checkpoint import Checkpoint
from ..files import exists
from .awq import awq_layout
from .compressed_tensors import CompressedTensorsLayout
from .fbgemm_fp8 import FbgemmFp8Layout
from .fp8 import Fp8Layout
from .gptq import GptqLayout
from .layout import Layout
from .stated import stated_quantization

_LAYOUTS: dict[str, Callable[[Checkpoint, Mapping[str, Any]], Layout]] = {
    "awq": awq_layout,
    "compressed-tensors": CompressedTensorsLayout,
    "fbgemm_fp8": FbgemmFp8Layout,
    "fp8": Fp8Layout,
    "gptq": GptqLayout,
}
_ELSEWHERE = {"hf_quant_config.json": "modelopt"}  # files beside config.json that tell of a quantization


def layout_of(checkpoint: Checkpoint) -> Layout | None:
    """How the checkpoint's quantized weights are stored; None if it says nothing of any.

    Raises CheckpointError for a method that is not read (naming it and those that are), and for packings of a known
    method that are not.
    """
    config = stated_quantization(checkpoint)
    if not config:
        _see_that_nothing_else_says_so(checkpoint)
        return None
    method = str(config.get("quant_method") or _unnamed(config)).lower()
    if method not in _LAYOUTS:
        raise _not_read(checkpoint, method)
    return _LAYOUTS[method](checkpoint, config)


def _unnamed(config: Mapping[str, object]) -> str:
    """The method of a config that names none: bitsandbytes did not always."""
    return "bitsandbytes" if config.get("load_in_4bit") or config.get("load_in_8bit") else "unnamed"


def _see_that_nothing_else_says_so(checkpoint: Checkpoint) -> None:
    for name, method in _ELSEWHERE.items():
        if exists(checkpoint.path / name):
            raise _not_read(checkpoint, f"{method} ({name})")


def _not_read(checkpoint: Checkpoint, method: str) -> CheckpointError:
    return CheckpointError(
        f"{checkpoint.path}: its weights are already quantized by the method {shown(method)}, which is not read; "
        f"known: {', '.join(_LAYOUTS)}. Use another quantization of this model, or the unquantized checkpoint."
    )
