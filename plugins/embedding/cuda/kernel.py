"""Embeddings on the GPU: rows of a table of their own, or of the head's packed weight where they are tied to it."""

from dataclasses import dataclass

import onnx_ir as ir

from ....builder.lowering.dims import Dim
from ....builder.lowering.facts import product
from ....builder.lowering.kernels import Kernel
from ....builder.lowering.lowering import Lowering
from ....builder.lowering.nodes import int_attribute, required
from ....builder.lowering.program import LinearWeight, PlainWeight
from ....builder.lowering.views import DType, View
from ....builder.targets.cuda.source.call import Context, CudaCall, Extent, Launch, WeightPart, tiles
from ....errors import BuildError
from ....quantization.scheme import WeightType
from ...linear.cuda.kernel import head_of
from ...linear.cuda.packing import layout_of_weight
from .embedding import embedding_kernel, packed_embedding_kernel

_BLOCK = 1024


@dataclass
class EmbeddingCall(CudaCall):
    """y [M, D] = rows[ids]; a LinearWeight is the head's, which an int8 embedding shares."""

    weight: PlainWeight | LinearWeight
    entries: int
    ids: View
    y: View
    rows: Dim

    def reads(self) -> list[View]:
        return [self.ids]

    def writes(self) -> list[View]:
        return [self.y]

    def table(self) -> PlainWeight | LinearWeight:
        return self.weight

    def launches(self, context: Context) -> list[Launch]:
        width = self.y.shape[1].count
        block = min(_BLOCK, 1 << (width - 1).bit_length())
        constants = {"ENTRIES": self.entries, "WIDTH": width, "Y_ROW": self.y.strides[0], "BLOCK": block}
        grid = (tiles(self.rows), Extent(-(-width // block)))
        pointers = {"ids": self.ids, "y": self.y}
        if isinstance(self.weight, PlainWeight):
            return [Launch(embedding_kernel, pointers | {"table": self.weight}, grid, constants)]
        layout = layout_of_weight(self.weight)
        group = layout.scheme.group_size
        constants |= {"STEP": layout.step, "GROUP": group or width}
        parts = {
            "values": WeightPart(self.weight, layout.element, layout.values_offset(0)),
            "scales": WeightPart(self.weight, layout.scale_element, layout.scales_offset(0)),
        }
        return [Launch(packed_embedding_kernel, pointers | parts, grid, constants)]


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
