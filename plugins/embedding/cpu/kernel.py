"""Embeddings on the CPU: rows of a table of their own, or of the head's packed weight where they are tied to it."""

from dataclasses import dataclass

import onnx_ir as ir

from ....builder.lowering.dims import Dim
from ....builder.lowering.facts import product
from ....builder.lowering.kernels import Kernel
from ....builder.lowering.lowering import Lowering
from ....builder.lowering.nodes import int_attribute, required
from ....builder.lowering.program import LinearWeight, PlainWeight
from ....builder.lowering.views import DType, View
from ....builder.targets.cpu.source.call import CpuCall
from ....builder.targets.cpu.source.spelling import size
from ....builder.targets.cpu.source.writer import Writer
from ....errors import BuildError
from ....quantization.scheme import WeightType
from ...linear.cpu.kernel import head_of
from ...linear.cpu.packing import layout_of_weight


@dataclass
class EmbeddingCall(CpuCall):
    """y [M, D] = rows[ids]; a LinearWeight is the head's, which an int8 embedding shares."""

    weight: PlainWeight | LinearWeight
    entries: int
    ids: View
    y: View
    rows: Dim

    header = "embedding/cpu/embedding.h"

    def reads(self) -> list[View]:
        return [self.ids]

    def writes(self) -> list[View]:
        return [self.y]

    def table(self) -> PlainWeight | LinearWeight:
        return self.weight

    def write(self, out: Writer) -> None:
        table = self.weight
        if isinstance(table, LinearWeight):
            kernel, element, offset = "packed_embedding", layout_of_weight(table, out.isa).cpp_type, table.offset
        else:
            kernel, element, offset = "embedding", "es::Bf16" if table.bf16 else "es::Fp32", table.buffer.offset
        out.add(
            f"  es::{kernel}<{element}, {self.entries}, {self.y.shape[1].count}>(pool, w + {offset}, "
            f"{out.at(self.ids)}, {out.rows(self.y)}, {size(self.rows)});"
        )


def _is_embedding(lowering: Lowering, node: ir.Node) -> bool:
    """Whether a Gather takes rows of a parameter [N, D] by ids that are computed in a step."""
    table, ids, facts = required(node, 0), required(node, 1), lowering.facts
    is_parameter = facts.is_static(table) and not facts.is_static(ids) and facts.constant(table) is None
    if not is_parameter or len(facts.shape(table)) != 2 or facts.dtype(table) is not DType.F32:
        return False
    return int_attribute(node, "axis", 0) in (0, -2)


def _lower(lowering: Lowering, node: ir.Node) -> None:
    table, out, values = required(node, 0), node.outputs[0], lowering.values
    view = values.view(required(node, 1))
    count = product(view.shape)
    flat = values.reshaped(view, (count,))
    if not count.is_one and flat.strides != (1,):
        flat = values.copy(flat)
    y = values.new(out)
    call = EmbeddingCall(
        name=(table.name or "").removesuffix(".weight"),
        weight=_packed(lowering, table) or lowering.weights.plain(table, bf16=lowering.config.dtype == "bf16"),
        entries=lowering.facts.shape(table)[0].count,
        ids=flat,
        y=values.matrix(y),
        rows=count,
    )
    values.emit(call)
    values.assign(out, y)


def _packed(lowering: Lowering, table: ir.Value) -> LinearWeight | None:
    """The head's weight, if it is this table and lookups shall read it."""
    head = head_of(lowering, table) if lowering.config.embedding == "int8" else None
    if head is None or head.scheme.weight.type is WeightType.INT8:
        return head
    remedy = "the checkpoint holds it so:" if head.stored else "build with --head int8, or"
    raise BuildError(
        f"--embedding int8 reads rows out of a head that is stored as int8, but the head, {table.name}, is stored as "
        f"{head.scheme}; {remedy} leave --embedding out"
    )


KERNELS = (Kernel("Gather", _lower, domain="", takes=_is_embedding),)
