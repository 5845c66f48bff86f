"""RMSNorm, SkipRMSNorm, SkipLayerNorm, and ONNX's LayerNormalization, on the CPU."""

from dataclasses import dataclass

from ....builder.targets.cpu.source.call import CpuCall
from ....builder.targets.cpu.source.spelling import float_literal, size
from ....builder.targets.cpu.source.writer import Writer
from ..lower import Norm, kernels


@dataclass
class NormCall(Norm, CpuCall):
    """es::rms_norm, layer_norm, skip_rms_norm or skip_layer_norm."""

    header = "norm/cpu/norm.h"

    def write(self, out: Writer) -> None:
        bias = f"{out.at_or_null(self.bias)}, " if self.is_centred else ""
        scale = f"{out.at_or_null(self.weight)}, {bias}{float_literal(self.epsilon)}"
        function = "layer_norm" if self.is_centred else "rms_norm"
        if self.skip is not None and self.total is not None:
            function = f"skip_{function}"
            views = f"{out.rows(self.x)}, {out.rows(self.skip)}"
            results = f"{out.rows(self.y)}, {out.rows(self.total)}"
            types = str(self.x.shape[1].count)
        else:
            views, results = out.heads(self.x), out.heads(self.y)
            types = f"{self.x.shape[1].count}, {self.x.shape[2].count}"
        out.add(f"  es::{function}<{types}>(pool, {views}, {scale}, {results}, {size(self.x.shape[0])});")


KERNELS = kernels(NormCall)
