"""Embeddings: rows of a table of their own, or of the head's packed weight where they are tied to it."""

import onnx_ir as ir

from ...errors import BuildError
from ...quantization.scheme import WeightType
from .lowering import Lowering, product
from .ops_fused import head_of
from .program import EmbeddingCall, LinearCall, LinearWeight
from .views import DType


def is_embedding(lowering: Lowering, table: ir.Value, axis: int) -> bool:
    if not lowering.is_static(table) or lowering.constant(table) is not None:
        return False
    return axis == 0 and len(lowering.shape(table)) == 2 and lowering.dtype(table) is DType.F32


def embedding(lowering: Lowering, out: ir.Value, table: ir.Value, ids: ir.Value) -> None:
    """Rows of a [N, D] parameter, one for every id."""
    view = lowering.view(ids)
    count = product(view.shape)
    flat = lowering.reshaped(view, (count,))
    if not count.is_one and flat.strides != (1,):
        flat = lowering.copy(flat)
    y = lowering.new(out)
    call = EmbeddingCall(
        name=(table.name or "").removesuffix(".weight"),
        table=_packed(lowering, table) or lowering.plain(table, bf16=lowering.config.dtype == "bf16"),
        entries=lowering.shape(table)[0].count,
        ids=flat,
        y=lowering.matrix(y),
        rows=count,
    )
    lowering.emit(call)
    lowering.assign(out, y)


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


def require_tied(lowering: Lowering) -> None:
    """Raises BuildError where lookups should read the head, and none does."""
    calls = lowering.program.calls
    tables = [call.table for call in calls if isinstance(call, EmbeddingCall)]
    if lowering.config.embedding == "plain" or any(isinstance(table, LinearWeight) for table in tables):
        return
    embeddings = [call.name for call in calls if isinstance(call, EmbeddingCall)]
    head = [call.name for call in calls if isinstance(call, LinearCall)][-1:]
    raise BuildError(
        "--embedding int8 reads rows out of the head, to which the embedding must be tied, but this model's have a "
        f"weight each ({', '.join(embeddings + head)}); leave --embedding out"
    )
