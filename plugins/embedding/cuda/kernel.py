"""Embeddings on the GPU: rows of a table of their own, or of the head's packed weight where they are tied to it."""

from dataclasses import dataclass

from ....builder.lowering.program import PlainWeight
from ....builder.targets.cuda.source.call import Context, CudaCall, Extent, Launch, WeightPart, tiles
from ...linear.cuda.packing import layout_of_weight
from ..lower import Embedding, kernels
from .embedding import embedding_kernel, packed_embedding_kernel

_BLOCK = 1024


@dataclass
class EmbeddingCall(Embedding, CudaCall):
    """embedding_kernel, or packed_embedding_kernel on the head's rows."""

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


KERNELS = kernels(EmbeddingCall)
