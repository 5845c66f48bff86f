"""PagedAttention on the CPU."""

from dataclasses import dataclass

from ....builder.lowering.program import CacheLayer
from ....builder.targets.cpu.source.call import CpuCall
from ....builder.targets.cpu.source.spelling import float_literal
from ....builder.targets.cpu.source.writer import Writer
from ....runtime.manifest import KvDtype
from ..lower import Attention, kernels


@dataclass
class AttentionCall(Attention, CpuCall):
    """es::PagedAttention."""

    header = "attention/cpu/paged_attention.h"

    def write(self, out: Writer) -> None:
        name, layer = kernel_type(self.layer, out), self.layer.index
        out.need_scratch(f"{name}::scratch_floats(threads, kLimits.max_num_tokens) * 4")
        out.add(
            f"  {name}::run(pool, {out.heads(self.q)}, {out.heads(self.k)}, {out.heads(self.v)}, "
            f"{out.heads(self.out)}, e.kv[{layer}], steps[{out.cache_groups[layer]}], {{{float_literal(self.scale)}, "
            f"{float_literal(self.softcap)}, {self.window}, {self.chunk}, {out.at_or_null(self.sinks)}, "
            f"{out.at_or_null(self.slopes)}}}, reinterpret_cast<float*>(scratch));"
        )


def kernel_type(layer: CacheLayer, out: Writer) -> str:
    """The alias of the kernel that attends in a layer."""
    sizes = f"{layer.heads}, {layer.kv_heads}, {layer.k_dim}, {layer.v_dim}, {out.block_size}"
    return out.alias("Attention", f"es::PagedAttention<{_element(layer)}, {sizes}>")


def _element(layer: CacheLayer) -> str:
    """What an element of the cache is."""
    name = f"es::{layer.dtype.capitalize()}"
    if layer.dtype not in (KvDtype.INT8, KvDtype.FP8):
        return name
    return f"es::PerToken<{name}>" if layer.key_scales is None else f"es::PerHead<{name}>"


KERNELS = kernels(AttentionCall)
