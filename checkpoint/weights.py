"""The parameters of a model as a checkpoint holds them: in one tensor, or in several that make it up."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from .assembly import AssembledTensor, Assembly
from .binding import bind
from .checkpoint import Checkpoint
from .layouts.kv_cache import KvScales
from .layouts.layout import Layout, QuantizedModules
from .layouts.stored import StoredWeight


@dataclass(frozen=True)
class Weights:
    """`tensors`: the checkpoint's tensor for each parameter that is one; `stored`: those that are quantized;
    `assembled`: those made of several tensors, or of one under another name.

    `kv_scales`: what keys and values are multiples of in a quantized cache, by attention module, where that is stored.
    """

    checkpoint: Checkpoint
    tensors: Mapping[str, str]
    stored: Mapping[str, StoredWeight] = field(default_factory=dict)
    kv_scales: Mapping[str, KvScales] = field(default_factory=dict)
    assembled: Mapping[str, AssembledTensor] = field(default_factory=dict)

    def read(self, name: str) -> np.ndarray | StoredWeight | AssembledTensor:
        """A parameter to take slices of: a view of the mapped file, or what reads and unpacks what is asked for."""
        if name in self.stored:
            return self.stored[name]
        return self.assembled[name] if name in self.assembled else self.checkpoint.read(self.tensors[name])

    def values(self, name: str) -> np.ndarray:
        """All of a parameter in its stored dtype, a quantized one dequantized to float32."""
        if name in self.stored:
            return self.stored[name].dequantize()
        return self.assembled[name].values() if name in self.assembled else self.checkpoint.read(self.tensors[name])

    @property
    def names(self) -> list[str]:
        """Every parameter."""
        return [*self.tensors, *self.stored, *self.assembled]

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
    assembled: Mapping[str, Assembly] | None = None,
) -> Weights:
    """`binding.bind` for a checkpoint that may be quantized (`layout`); raises the same, of all parameters at once."""
    quantized = layout.resolve(checkpoint, parameters, base_prefix) if layout else QuantizedModules()
    ignorable = [*ignorable_unexpected, *(layout.ignorable if layout else ())]
    made = {name: each for name, each in (assembled or {}).items() if name in parameters}
    bound = bind(checkpoint, parameters, tied, ignorable, base_prefix, quantized, made)
    tensors = {
        name: AssembledTensor(each, checkpoint.read) for name, each in made.items() if name not in quantized.weights
    }
    return Weights(checkpoint, bound, quantized.weights, quantized.kv_scales, tensors)
