"""The decoder layers of a quantized checkpoint, each a shard of the folder in the making."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np

from ...checkpoint.checkpoint import Checkpoint
from ...checkpoint.folder import CheckpointFolder
from ...checkpoint.layouts.layout_writer import LayoutWriter
from ...checkpoint.layouts.registry import layout_of
from ...checkpoint.weights import Weights, bind_weights
from ...errors import BuildError
from .methods import QuantizedLayer
from .report import LayerReport
from .selection import Block, Selection

_OTHERS = "others"
_CHECKED_AT_ONCE = 1 << 22


class Shards:
    """Saves decoder layers as a format stores them, and reads them back as float32 weights."""

    def __init__(self, folder: CheckpointFolder, weights: Weights, writer: LayoutWriter, selection: Selection) -> None:
        self._folder, self._weights, self._writer = folder, weights, writer
        self._config = writer.config(sorted(selection.left_alone))
        self._blocks = selection.blocks

    @property
    def config(self) -> dict[str, object]:
        """config.json's quantization_config."""
        return self._config

    @property
    def missing(self) -> list[int]:
        """Which decoder layers are not saved."""
        shards = self._folder.shards
        return [index for index, block in enumerate(self._blocks) if block.name not in shards]

    def dtypes(self, block: Block) -> dict[str, np.dtype]:
        """In what a decoder layer's parameters are stored that stay as they are."""
        return {name: self._weights.values(name).dtype for name in block.parameters}

    def load(self, block: Block) -> dict[str, np.ndarray]:
        """The unquantized parameters of a decoder layer, float32."""
        return {name: np.array(self._weights.values(name), np.float32) for name in block.parameters}

    def save(
        self,
        block: Block,
        changed: Mapping[str, np.ndarray],
        layers: Sequence[QuantizedLayer],
        more: Mapping[str, np.ndarray],
    ) -> None:
        """Write a decoder layer: `layers` quantized, the parameters `changed`, the others as they are, and `more`."""
        quantized = {made.layer.parameter for made in layers}
        tensors = dict(more)
        for name in block.parameters:
            if name not in quantized:
                original = self._weights.values(name)
                tensors[name] = changed[name].astype(original.dtype) if name in changed else original
        for made in layers:
            packed = self._writer.pack(made.weight, made.input_scale)
            tensors |= {f"{made.layer.name}.{suffix}": tensor for suffix, tensor in packed.items()}
        scheme = str(self._writer.scheme)
        reports = [LayerReport(made.layer.name, scheme, made.weight_error, made.output_error) for made in layers]
        self._folder.write(block.name, tensors, [asdict(report) for report in reports])

    def restore(self, block: Block, shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
        """The parameters of a saved decoder layer as its readers see them, float32."""
        infos = self._folder.infos(block.name)
        saved = Checkpoint(self._folder.path, {"quantization_config": self._config}, {}, infos)
        weights = bind_weights(saved, layout_of(saved), {name: shapes[name] for name in block.parameters})
        return {name: np.array(weights.values(name), np.float32) for name in block.parameters}

    def reports(self) -> list[LayerReport]:
        """What was noted of every layer that was quantized."""
        return [LayerReport(**facts) for block in self._blocks for facts in self._folder.note(block.name)]

    def save_others(self, names: Sequence[str]) -> None:
        """Copy the parameters that are in no decoder layer."""
        if _OTHERS not in self._folder.shards:
            tensors = {name: self._weights.values(name) for name in names}
            for name, tensor in tensors.items():
                require_finite(name, tensor)
            self._folder.write(_OTHERS, tensors)


def require_finite(name: str, tensor: np.ndarray) -> None:
    """Raise BuildError naming a tensor that holds NaN or an infinity."""
    flat = tensor.reshape(-1)
    for first in range(0, len(flat), _CHECKED_AT_ONCE):
        part = np.asarray(flat[first : first + _CHECKED_AT_ONCE], np.float32)
        if not np.isfinite(part).all():
            at = first + int(np.flatnonzero(~np.isfinite(part))[0])
            place = ", ".join(map(str, np.unravel_index(at, tensor.shape)))
            raise BuildError(
                f"{name} holds {flat[at]} at [{place}]; weights must be finite numbers. The checkpoint is damaged: "
                "download it again"
            )
