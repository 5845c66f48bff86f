"""Embeddings on the CPU: rows of a table of their own, or of the head's packed weight where they are tied to it."""

from dataclasses import dataclass

from ....builder.lowering.program import LinearWeight
from ....builder.targets.cpu.source.call import CpuCall
from ....builder.targets.cpu.source.spelling import size
from ....builder.targets.cpu.source.writer import Writer
from ...linear.cpu.packing import layout_of_weight
from ..lower import Embedding, kernels


@dataclass
class EmbeddingCall(Embedding, CpuCall):
    """es::embedding, or packed_embedding of the head's rows."""

    header = "embedding/cpu/embedding.h"

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


KERNELS = kernels(EmbeddingCall)
