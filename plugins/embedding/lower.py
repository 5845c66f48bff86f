"""Embeddings as calls, for any target: a Gather that takes rows of a parameter."""

from dataclasses import dataclass
from functools import partial

import onnx_ir as ir

from ...builder.lowering.dims import Dim
from ...builder.lowering.facts import product
from ...builder.lowering.kernels import Kernel
from ...builder.lowering.lowering import Lowering
from ...builder.lowering.nodes import int_attribute, required
from ...builder.lowering.program import Call, LinearWeight, PlainWeight
from ...builder.lowering.views import DType, View
from ...errors import BuildError
from ...quantization.scheme import WeightType
from ..linear.lower import head_of


@dataclass
class Embedding(Call):
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


def kernels(call: type[Embedding]) -> tuple[Kernel, ...]:
    """The kernels of a target, whose calls are made by `call`."""
    return (Kernel("Gather", partial(_lower, call), domain="", takes=_is_embedding),)


def _is_embedding(lowering: Lowering, node: ir.Node) -> bool:
    """Whether a Gather takes rows of a parameter [N, D] by ids that are computed in a step."""
    table, ids, facts = required(node, 0), required(node, 1), lowering.facts
    is_parameter = facts.is_static(table) and not facts.is_static(ids) and facts.constant(table) is None
    if not is_parameter or len(facts.shape(table)) != 2 or facts.dtype(table) is not DType.F32:
        return False
    return int_attribute(node, "axis", 0) in (0, -2)


def _lower(call: type[Embedding], lowering: Lowering, node: ir.Node) -> None:
    table, out, values = required(node, 0), node.outputs[0], lowering.values
    view = values.view(required(node, 1))
    count = product(view.shape)
    flat = values.reshaped(view, (count,))
    if not count.is_one and flat.strides != (1,):
        flat = values.copy(flat)
    y = values.new(out)
    values.emit(
        call(
            name=(table.name or "").removesuffix(".weight"),
            weight=_packed(lowering, table) or lowering.weights.plain(table, bf16=lowering.config.dtype == "bf16"),
            entries=lowering.facts.shape(table)[0].count,
            ids=flat,
            y=values.matrix(y),
            rows=count,
        )
    )
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
