"""What a quantization did, and how far each layer is off."""

import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class LayerReport:
    """One quantized layer. `scheme` is empty where nobody told.

    `weight_error`: the norm of the weight's change relative to the weight's. `output_error`: the root mean square of
    the outputs' change on the calibration data, relative to the outputs'; None without calibration.
    """

    name: str
    scheme: str
    weight_error: float
    output_error: float | None

    @property
    def error(self) -> float:
        """That of the outputs, where it is known."""
        return self.weight_error if self.output_error is None else self.output_error

    @property
    def kind(self) -> str:
        """The kind of projection: the last part of its name."""
        return self.name.rpartition(".")[2]

    @property
    def depth(self) -> int | None:
        """The layer of the model it belongs to: the first number of its name."""
        match = re.search(r"(?:^|\.)(\d+)(?:\.|$)", self.name)
        return int(match[1]) if match else None


@dataclass
class QuantizeReport:
    """What `quantize` returns and saves in the checkpoint. Sizes in bytes, times in seconds.

    `calibration`: source, seed, samples, sequence_length and tokens; None without. `left_alone`: layer -> reason.
    """

    method: str
    scheme: str
    format: str
    kv_cache: str | None
    seed: int
    calibration: dict[str, Any] | None = None
    layers: list[LayerReport] = field(default_factory=list)
    left_alone: dict[str, str] = field(default_factory=dict)
    bytes_before: int = 0
    bytes_after: int = 0
    seconds: float = 0.0

    def worst(self, count: int = 5) -> list[LayerReport]:
        """The layers whose outputs (or weights, without calibration) are furthest off."""
        return sorted(self.layers, key=lambda layer: -layer.error)[:count]

    def to_json(self) -> str:
        """The text of quantization_report.json: the same for the same inputs, so without times."""
        facts = {key: value for key, value in asdict(self).items() if key not in ("seconds", "bytes_after")}
        return json.dumps(facts, indent=2) + "\n"
