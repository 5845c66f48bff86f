"""Experts on NVIDIA GPUs."""

from dataclasses import dataclass, field
from typing import Any

from ....builder.lowering.dims import Dim
from ....builder.lowering.program import LinearWeight
from ....builder.lowering.values import Values
from ....builder.lowering.views import View
from ....builder.targets.cuda.source.call import Context, CudaCall, Extent, Launch, tiles
from ...linear.cuda.launches import rounds_inputs
from ...linear.cuda.packing import layout_of_weight
from ...linear.cuda.tactics import constants
from ...linear.cuda.weight_parts import channel_parts, element_parts
from ..lower import Experts, kernels
from .experts import add_kernel, down_kernel, up_kernel

_OUTPUTS, _ROWS = 64, 16
_ITEM_BYTES = {"*fp32": 4, "*bf16": 2, "*fp16": 2, "*i8": 1, "*u8": 1}


@dataclass
class ExpertsCall(Experts, CudaCall):
    """up_kernel, down_kernel and add_kernel.

    inner [pairs, I] and outer [pairs, H] hold what the two projections give for every token and choice.
    """

    inner: View = field(init=False)
    outer: View = field(init=False)

    def allocate(self, values: Values) -> None:
        pairs = self._pairs
        self.inner = values.allocate("experts_inner", (pairs, Dim(self.up.n)))
        self.outer = values.allocate("experts_outer", (pairs, Dim(self.down.n)))

    def reads(self) -> list[View]:
        return [*super().reads(), self.inner, self.outer]

    def writes(self) -> list[View]:
        return [self.inner, self.outer, *super().writes()]

    def bf16_reads(self) -> list[View]:
        inputs = ((self.x, self.up), (self.inner, self.down))
        return [view for view, weight in inputs if rounds_inputs(weight)]

    @property
    def _pairs(self) -> Dim:
        """Of tokens and choices."""
        return Dim(self.rows.count * self.up.active, self.rows.symbol)

    def launches(self, context: Context) -> list[Launch]:
        active = self.up.active
        pairs = tiles(self._pairs)
        routes = {"EXPERTS": self.up.count, "ACTIVE": active, "INDEX_ROW": self.indices.strides[0]}
        gate_bias, up_bias, down_bias = self.biases
        first_bias = gate_bias if len(self.up.sources) == 2 else up_bias
        up_pointers = element_parts(self.up) | channel_parts(self.up) | {"bias": first_bias, "up_bias": up_bias}
        up_pointers |= {"x": self.x, "indices": self.indices, "inner": self.inner}
        down_pointers = element_parts(self.down, [""]) | channel_parts(self.down, [""])
        down_pointers |= {"bias": down_bias, "outer": self.outer}
        gate = {
            "ACTIVATION": str(self.attributes.activation),
            "LIMIT": self.attributes.limit,
            "UP_OFFSET": self.attributes.up_offset,
        }
        ends = {"WEIGHT_ROW": self.weights.strides[0], "Y_ROW": self.y.strides[0], "N": self.down.n, "BLOCK": 256}
        return [
            Launch(
                up_kernel,
                up_pointers,
                (pairs, _tiles(self.up)),
                routes | _constants(self.up) | gate | {"X_ROW": self.x.strides[0]},
                num_stages=4,
            ),
            Launch(
                down_kernel,
                down_pointers | {"inner": self.inner, "indices": self.indices},
                (pairs, _tiles(self.down)),
                routes | _constants(self.down) | {"X_ROW": self.down.k},
                num_stages=4,
            ),
            Launch(
                add_kernel,
                {"outer": self.outer, "indices": self.indices, "weights": self.weights, "y": self.y},
                (tiles(self.rows), Extent(-(-self.down.n // 256))),
                routes | ends,
            ),
        ]


def _tiles(weight: LinearWeight) -> Extent:
    return Extent(-(-weight.n // _OUTPUTS))


def _constants(weight: LinearWeight) -> dict[str, Any]:
    """What both projections' kernels are told of a weight."""
    layout = layout_of_weight(weight)
    found = {name: value for name, value in constants(layout).items() if name != "QUANTIZED"}
    strides = {
        "VALUES": layout.nbytes // _ITEM_BYTES[layout.element],
        "SCALES": layout.nbytes // _ITEM_BYTES[layout.scale_element],
        "CHANNELS": layout.nbytes // 4,
    }
    return found | strides | {"BLOCK": _OUTPUTS, "ROWS": _ROWS}


KERNELS = kernels(ExpertsCall)
