"""Experts on the CPU."""

from dataclasses import dataclass

import onnx_ir as ir

from ....builder.lowering.dims import Dim
from ....builder.lowering.kernels import Kernel
from ....builder.lowering.lowering import Lowering
from ....builder.lowering.nodes import parsed
from ....builder.lowering.program import LinearWeight, Tactic
from ....builder.lowering.views import View
from ....builder.lowering.work import Work
from ....builder.targets.cpu.source.call import CpuCall
from ....builder.targets.cpu.source.spelling import float_literal, largest, size
from ....builder.targets.cpu.source.writer import Writer
from ...cpu.isa import Isa
from ...linear.cpu.kernel import functor
from ...linear.cpu.packing import layout_of_weight
from ..op import ExpertsAttributes


@dataclass
class ExpertsCall(CpuCall):
    """y [M, H] = the sum over j of weights[m, j] times what the expert indices[m, j] makes of x [M, H]."""

    x: View
    indices: View
    weights: View
    up: LinearWeight  # gate and up where experts are gated
    down: LinearWeight
    biases: tuple[View | None, View | None, View | None]  # of gate, up and down
    attributes: ExpertsAttributes
    y: View
    rows: Dim

    header = "experts/cpu/experts.h"

    def reads(self) -> list[View]:
        return [view for view in (self.x, self.indices, self.weights, *self.biases) if view is not None]

    def writes(self) -> list[View]:
        return [self.y]

    def work(self) -> Work:
        matrices = [*self.up.sources, *self.down.sources]
        return Work(token_ops=2 * self.up.active * len(matrices) * self.up.n * self.up.k * self.rows.count)

    def tactic(self, isa: Isa) -> Tactic:
        up, down = (layout_of_weight(weight, isa) for weight in (self.up, self.down))
        types = ", ".join(dict.fromkeys(layout.cpp_type.removeprefix("es::") for layout in (up, down)))
        sizes = f"{self.up.active} of {self.up.count}, {self.up.n}, {self.up.k}"
        return Tactic(self.name, f"experts<{types}, {sizes}> ({isa})", up.report())

    def write(self, out: Writer) -> None:
        up, down = (layout_of_weight(weight, out.isa) for weight in (self.up, self.down))
        gated = "true" if up.gated else "false"
        name = out.alias(
            "Experts",
            f"es::Experts<{up.cpp_type}, {down.cpp_type}, {functor(self.attributes.activation)}, {gated}, "
            f"{self.up.count}, {self.up.active}, {up.k}, {up.n}>",
        )
        biases = ", ".join(out.at_or_null(bias) for bias in self.biases)
        factors = f"{float_literal(self.attributes.limit)}, {float_literal(self.attributes.up_offset)}"
        out.need_scratch(f"{name}::scratch_bytes({largest(self.rows)})")
        out.add(
            f"  {name}::run(pool, {{w + {self.up.offset}, w + {self.down.offset}, {biases}, {factors}}}, "
            f"{out.rows(self.x)}, {out.at(self.indices)}, {self.indices.strides[0]}, {out.rows(self.weights)}, "
            f"{out.rows(self.y)}, {size(self.rows)}, scratch);"
        )


def _lower(lowering: Lowering, node: ir.Node) -> None:
    (x, indices, weights, gate, up, down, *biases), attributes = parsed(node)
    values, packed, out = lowering.values, lowering.weights, node.outputs[0]
    rows = values.matrix(values.view(x))
    chosen = values.matrix(values.view(indices))
    active = chosen.shape[1].count
    y = values.new(out)
    call = ExpertsCall(
        name=(node.name or "").rpartition("/")[0],
        x=rows,
        indices=chosen,
        weights=values.matrix(values.view(weights)),
        up=packed.experts([up] if gate is None else [gate, up], active),
        down=packed.experts([down], active),
        biases=tuple(packed.optional_view(bias) for bias in biases),  # type: ignore[arg-type]
        attributes=attributes,
        y=values.matrix(y),
        rows=rows.shape[0],
    )
    values.emit(call)
    values.assign(out, y)


KERNELS = (Kernel("Experts", _lower),)
