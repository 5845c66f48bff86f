"""PagedAttention as a call, for any target."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx_ir as ir

from ...builder.lowering.dims import Symbol
from ...builder.lowering.facts import Unsupported
from ...builder.lowering.fused_call import FusedCall
from ...builder.lowering.kernels import Kernel
from ...builder.lowering.lowering import Lowering
from ...builder.lowering.nodes import parsed, path_of
from ...builder.lowering.program import CacheLayer
from ...builder.lowering.views import View
from ...builder.lowering.work import Work
from ...errors import BuildError
from ...runtime.manifest import KvDtype


@dataclass
class Attention(FusedCall):
    """q [T, H, D], k [T, Hk, D], v [T, Hk, Dv] -> out [T, H, Dv], through the KV cache of one layer."""

    q: View
    k: View
    v: View
    out: View
    sinks: View | None
    slopes: View | None
    layer: CacheLayer
    scale: float
    softcap: float
    window: int
    chunk: int

    def reads(self) -> list[View]:
        return [view for view in (self.q, self.k, self.v, self.sinks, self.slopes) if view is not None]

    def writes(self) -> list[View]:
        return [self.out]

    def work(self) -> Work:
        return Work(attention_ops=2 * self.layer.heads * (self.layer.k_dim + self.layer.v_dim))


def kernels(call: type[Attention]) -> tuple[Kernel, ...]:
    """The kernels of a target, whose calls are made by `call`."""
    return (Kernel("PagedAttention", partial(_lower, call)),)


def _lower(call: type[Attention], lowering: Lowering, node: ir.Node) -> None:
    (q, k, v, sinks, slopes), attributes = parsed(node)
    if not attributes.causal:
        raise Unsupported("attention that is not causal")
    queries, keys, values = (_heads(lowering, value) for value in (q, k, v))
    out = node.outputs[0]
    target = lowering.values.new(out)
    config, kv_heads = lowering.config, keys.shape[1].count
    key_scales, value_scales = _kv_scales(lowering, node, kv_heads)
    layer = CacheLayer(
        index=attributes.cache_layer,
        heads=queries.shape[1].count,
        kv_heads=kv_heads,
        k_dim=keys.shape[2].count,
        v_dim=values.shape[2].count,
        window=min(filter(None, (attributes.window, attributes.chunk)), default=0),
        dtype=KvDtype(config.kv_cache or config.dtype),
        key_scales=key_scales,
        value_scales=value_scales,
    )
    lowering.program.layers.append(layer)
    made = call(
        name=path_of(node),
        q=queries,
        k=keys,
        v=values,
        out=lowering.values.heads(target),
        sinks=lowering.weights.optional_view(sinks),
        slopes=lowering.weights.optional_view(slopes),
        layer=layer,
        scale=attributes.scale,
        softcap=attributes.softcap,
        window=attributes.window,
        chunk=attributes.chunk,
    )
    made.allocate(lowering.values)
    lowering.values.emit(made)
    lowering.values.assign(out, target)


def _kv_scales(lowering: Lowering, node: ir.Node, kv_heads: int) -> tuple[View | None, View | None]:
    """The checkpoint's own scales of the node's keys and values, if it has any for the cache that is wanted."""
    module = (node.name or "").rpartition("/")[0]
    scales = lowering.kv_scales.get(module)
    if scales is None or scales.type != lowering.config.kv_cache:
        return None, None
    views = []
    for name, values in (("k_scale", scales.key), ("v_scale", scales.value)):
        if values.size not in (1, kv_heads):
            raise BuildError(f"{module}.{name} has {values.size} scales for {kv_heads} key-value heads")
        views.append(lowering.weights.vector(f"{module}.{name}", np.array(np.broadcast_to(values, kv_heads))))
    return views[0], views[1]


def _heads(lowering: Lowering, value: ir.Value) -> View:
    shape = lowering.facts.shape(value)
    if len(shape) != 4 or not shape[0].is_one or shape[2].symbol is not Symbol.TOKENS or shape[2].count != 1:
        raise Unsupported(f"attention over {value.name!r}, whose shape is not [1, heads, T, head_dim]")
    return lowering.values.heads(lowering.values.view(value))
