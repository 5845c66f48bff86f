"""What quantizing cost each linear layer: as the quantizer reported it, or by comparing weights."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...checkpoint.config import read_json
from ...errors import CheckpointError
from ..quantize.report import LayerReport

if TYPE_CHECKING:
    from torch import nn


def read_layers(path: Path) -> list[LayerReport]:
    """The layers of a quantization report. Raises CheckpointError where it is not one."""
    try:
        return [
            LayerReport(
                layer["name"],
                layer["scheme"],
                _number(layer["weight_error"]),
                None if layer["output_error"] is None else _number(layer["output_error"]),
            )
            for layer in read_json(path)["layers"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path}: not a quantization report ({error!r}); quantize the checkpoint again, or remove the file."
        ) from None


def weight_errors(model: "nn.Module", reference: "nn.Module") -> list[LayerReport]:
    """Each linear layer's weight against that of the same name in `reference`; equal ones are left out."""
    import torch

    expected = dict(reference.named_modules())
    found = []
    for name, module in model.named_modules():
        weight, other = _matrix(module), _matrix(expected.get(name))
        if weight is None or other is None or weight.shape != other.shape or torch.equal(weight, other):
            continue
        error = torch.linalg.vector_norm(weight - other) / torch.linalg.vector_norm(other).clamp_min(1e-30)
        found.append(LayerReport(name, "", float(error), None))
    return found


def _matrix(module: Any) -> Any:
    """The weight of a linear layer, also of GPT-2's transposed ones."""
    is_linear = type(module).__name__ in ("Linear", "Conv1D")
    return module.weight.detach() if is_linear else None


def _number(value: Any) -> float:
    if not math.isfinite(number := float(value)):
        raise ValueError(f"an error of {number}")
    return number
