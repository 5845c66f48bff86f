"""The weights of a program, each once: packed for the linear kernels, or stored as they are."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from ...quantization.scheme import LinearScheme, WeightScheme
from ..build_options import BuildConfig
from .dims import Shape, Symbol
from .facts import Facts, Unsupported, product
from .program import LinearWeight, PlainWeight, Program
from .schemes import scheme_of_head, scheme_of_linear, scheme_of_router
from .stored_rows import Stored, stored_rows
from .views import Buffer, Home, View, contiguous, show


@dataclass
class ProgramWeights:
    """Adds what is asked for to the weights of `program`. `constants` holds those that are not of the network."""

    facts: Facts
    config: BuildConfig
    stored: Stored
    program: Program
    constants: ir.Graph = field(default_factory=lambda: ir.Graph([], [], nodes=[], name="constants"))
    _plain: dict[tuple[object, ...], PlainWeight] = field(default_factory=dict)
    _linear: dict[tuple[object, ...], LinearWeight] = field(default_factory=dict)

    def plain(self, value: ir.Value, *, bf16: bool = False, add: float = 0.0) -> PlainWeight:
        """The static value as a tensor of weights.bin."""
        key = (value, bf16, add)
        if key not in self._plain:
            size = _static_size(self.facts.shape(value))
            buffer = Buffer(value.name or "constant", self.facts.dtype(value), Symbol.ONE, size, Home.WEIGHTS)
            self._plain[key] = PlainWeight(value, buffer, bf16, add)
            self.program.plain_weights.append(self._plain[key])
        return self._plain[key]

    def plain_view(self, value: ir.Value, *, add: float = 0.0) -> View:
        if not self.facts.is_static(value):
            raise Unsupported(f"{value.name!r} would have to be a weight, but it is computed at run time")
        return contiguous(self.plain(value, add=add).buffer, self.facts.shape(value))

    def optional_view(self, value: ir.Value | None, *, add: float = 0.0) -> View | None:
        return None if value is None else self.plain_view(value, add=add)

    def vector(self, name: str, data: np.ndarray) -> View:
        """float32 [N], known now, in weights.bin: a constant beside those of the network."""
        shape, kind = ir.Shape(data.shape), ir.TensorType(ir.DataType.FLOAT)
        value = ir.Value(name=name, shape=shape, type=kind, const_value=ir.tensor(data, name=name))
        self.constants.register_initializer(value)
        return self.plain_view(value)

    def linear(
        self,
        sources: Sequence[ir.Value],
        *,
        transposed: bool = False,
        is_head: bool = False,
        is_router: bool = False,
    ) -> LinearWeight:
        """The packed form of a static matrix, or of a gate and an up matrix."""
        key = (tuple(sources), transposed)
        if key not in self._linear:
            first, second = (dim.count for dim in self.facts.shape(sources[0]))
            n, k = (second, first) if transposed else (first, second)
            found = stored_rows(sources, self.stored)
            name = sources[0].name or ""
            scheme = scheme_of_router(self.config) if is_router else self._scheme_of_plain(name, k, is_head, found)
            weight = LinearWeight(tuple(sources), n, k, LinearScheme(scheme), transposed)
            if isinstance(found, str):
                weight.dequantized = found
            else:
                weight.stored, weight.scheme, weight.input_scale = found, found[0].scheme, found[0].input_scale
            self._linear[key] = weight
            self.program.linear_weights.append(weight)
        return self._linear[key]

    def experts(self, sources: Sequence[ir.Value], active: int) -> LinearWeight:
        """The packed form of static matrices [E, N, K], or of gates and ups, of which a token takes `active`."""
        key = (tuple(sources), active)
        if key not in self._linear:
            for source in sources:
                if not self.facts.is_static(source):
                    raise Unsupported(f"its weight {source.name!r} is not known at build time")
            count, n, k = (dim.count for dim in self.facts.shape(sources[0]))
            found = stored_rows(sources, self.stored)
            scheme = LinearScheme(scheme_of_linear(self.config, sources[0].name or "", k))
            weight = LinearWeight(tuple(sources), n, k, scheme, count=count, active=min(active, count))
            weight.dequantized = found if isinstance(found, str) else ""
            self._linear[key] = weight
            self.program.linear_weights.append(weight)
        return self._linear[key]

    def matrix(self, value: ir.Value) -> ir.Value:
        """The value, which must be a matrix known at build time."""
        if not self.facts.is_static(value) or len(self.facts.shape(value)) != 2:
            raise Unsupported(f"its weight {value.name!r} is not a matrix known at build time")
        return value

    def _scheme_of_plain(self, name: str, k: int, is_head: bool, found: object) -> WeightScheme:
        """The scheme of a weight of `k` inputs that the build rounds; `found`: what the checkpoint has quantized of
        it."""
        if not is_head:
            return scheme_of_linear(self.config, name, k)
        others = not found and any(weight.scheme is not None for weight in self.stored.values())
        return scheme_of_head(self.config, others_quantized=others)


def _static_size(shape: Shape) -> int:
    size = product(shape)
    if not size.is_static:
        raise Unsupported(f"a weight has the shape {show(shape)}, which varies")
    return size.count
