"""What quantizing cost each linear layer: as the quantizer reported it, or by comparing weights."""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...checkpoint.config import read_json
from ...errors import CheckpointError

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class LayerError:
    """Relative errors of one linear layer: of its weight and, where the quantizer saw its inputs, of its output.

    Both are root mean squares relative to those of the unquantized layer.
    """

    name: str
    scheme: str
    weight_error: float | None
    output_error: float | None

    @property
    def error(self) -> float:
        """That of the output, or of the weight where nothing else is known; NaN where nothing is."""
        found = self.output_error if self.output_error is not None else self.weight_error
        return math.nan if found is None else found

    @property
    def kind(self) -> str:
        """The kind of projection: the last part of its name."""
        return self.name.rpartition(".")[2]

    @property
    def depth(self) -> int | None:
        """The layer of the model it belongs to: the first number of its name."""
        match = re.search(r"(?:^|\.)(\d+)(?:\.|$)", self.name)
        return int(match[1]) if match else None


def read_layers(path: Path) -> list[LayerError]:
    """The layers of a quantization report. Raises CheckpointError where it is not one."""
    try:
        return [
            LayerError(layer["name"], layer["scheme"], _number(layer["weight_error"]), _number(layer["output_error"]))
            for layer in read_json(path)["layers"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path}: not a quantization report ({error!r}); quantize the checkpoint again, or remove the file."
        ) from None


def weight_errors(model: "nn.Module", reference: "nn.Module") -> list[LayerError]:
    """Each linear layer's weight against that of the same name in `reference`; equal ones are left out."""
    import torch

    expected = dict(reference.named_modules())
    found = []
    for name, module in model.named_modules():
        weight, other = _matrix(module), _matrix(expected.get(name))
        if weight is None or other is None or weight.shape != other.shape or torch.equal(weight, other):
            continue
        error = torch.linalg.vector_norm(weight - other) / torch.linalg.vector_norm(other).clamp_min(1e-30)
        found.append(LayerError(name, "", float(error), None))
    return found


def _matrix(module: Any) -> Any:
    """The weight of a linear layer, also of GPT-2's transposed ones."""
    is_linear = type(module).__name__ in ("Linear", "Conv1D")
    return module.weight.detach() if is_linear else None


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if not math.isfinite(number := float(value)):
        raise ValueError(f"an error of {number}")
    return number
