"""The parameters of a model as a checkpoint holds them: some in one tensor, quantized ones in several."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from .binding import bind
from .checkpoint import Checkpoint
from .layouts.kv_cache import KvScales
from .layouts.layout import Layout, QuantizedModules
from .layouts.stored import StoredWeight


@dataclass(frozen=True)
class Weights:
    """`tensors`: the checkpoint's tensor for each parameter that is not quantized; `stored`: those that are.

    `kv_scales`: what keys and values are multiples of in a quantized cache, by attention module, where that is stored.
    """

    checkpoint: Checkpoint
    tensors: Mapping[str, str]
    stored: Mapping[str, StoredWeight] = field(default_factory=dict)
    kv_scales: Mapping[str, KvScales] = field(default_factory=dict)

    def read(self, name: str) -> np.ndarray | StoredWeight:
        """A parameter to take slices of: a view of the mapped file, or what unpacks the rows that are asked for."""
        return self.stored[name] if name in self.stored else self.checkpoint.read(self.tensors[name])

    def values(self, name: str) -> np.ndarray:
        """All of a parameter in its stored dtype, a quantized one dequantized to float32."""
        return self.stored[name].dequantize() if name in self.stored else self.checkpoint.read(self.tensors[name])

    def reference(self, name: str) -> np.ndarray:
        """`values`, but of quantized ones what their format's specification says, whatever their reader does."""
        stored = self.stored.get(name)
        return self.values(name) if stored is None or stored.reference is None else stored.reference()


def bind_weights(
    checkpoint: Checkpoint,
    layout: Layout | None,
    parameters: Mapping[str, Sequence[int]],
    tied: Mapping[str, str] | None = None,
    ignorable_unexpected: Iterable[str] = (),
    base_prefix: str = "",
) -> Weights:
    """`binding.bind` for a checkpoint that may be quantized (`layout`); raises the same, of all parameters at once."""
    quantized = layout.resolve(checkpoint, parameters, base_prefix) if layout else QuantizedModules()
    ignorable = [*ignorable_unexpected, *(layout.ignorable if layout else ())]
    bound = bind(checkpoint, parameters, tied, ignorable, base_prefix, quantized)
    return Weights(checkpoint, bound, quantized.weights, quantized.kv_scales)
