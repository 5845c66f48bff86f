"""The plugin operations, and the standard ones that have a plugin's kernel: linear layers, norms."""

import numpy as np
import onnx_ir as ir

from ...errors import BuildError
from ...runtime.manifest import KvDtype
from .dims import Symbol
from .lowering import (
    Lowering,
    Unsupported,
    float_attribute,
    int_attribute,
    lowers,
    path_of,
    product,
    str_attribute,
)
from .program import (
    AttentionCall,
    CacheLayer,
    GatedMlpCall,
    LinearCall,
    LinearWeight,
    NormCall,
    RotaryCall,
)
from .views import View

DOMAIN = "enginesmith"
ACTIVATIONS = ("", "gelu", "gelu_tanh", "silu", "relu", "relu2", "quick_gelu", "tanh", "sigmoid")
ROTARY_STYLES = ("neox", "gptj", "gptj_to_neox")


@lowers("Linear", domain=DOMAIN)
def _linear(lowering: Lowering, node: ir.Node) -> None:
    x, weight, bias, residual = _inputs(node, 4)
    transposed = bool(int_attribute(node, "transposed", 0))
    linear(lowering, node, x, weight, bias, residual, transposed=transposed)


@lowers("Gemm")
def _gemm(lowering: Lowering, node: ir.Node) -> None:
    x, weight, bias = _inputs(node, 3)
    plain = float_attribute(node, "alpha", 1.0) == 1.0 and float_attribute(node, "beta", 1.0) == 1.0
    if not plain or int_attribute(node, "transA", 0) or weight is None or not lowering.is_static(weight):
        raise Unsupported("the cpu target takes Gemm only with a weight, alpha 1, beta 1 and no transA")
    linear(lowering, node, x, weight, bias, None, transposed=not int_attribute(node, "transB", 0))


def linear(
    lowering: Lowering,
    node: ir.Node,
    x: ir.Value | None,
    weight: ir.Value | None,
    bias: ir.Value | None,
    residual: ir.Value | None,
    *,
    transposed: bool,
) -> None:
    """Lower y = act(x W^T + bias) + residual."""
    out = node.outputs[0]
    rows = lowering.matrix(lowering.view(_required(x)))
    count = rows.shape[0]
    packed = lowering.linear([_weight(lowering, weight)], transposed=transposed, is_head=_makes_logits(out))
    y = lowering.new(out)
    call = LinearCall(
        name=path_of(node),
        x=rows,
        weight=packed,
        bias=None if bias is None else lowering.plain_view(bias),
        residual=None if residual is None else lowering.matrix(lowering.view(residual).expand(y.shape)),
        activation=_activation(node),
        y=lowering.matrix(y),
        rows=count,
    )
    lowering.emit(call)
    lowering.assign(out, y)


def head_of(lowering: Lowering, weight: ir.Value) -> LinearWeight | None:
    """The packed form of a weight that makes the logits, whether or not that layer is lowered by now; else None."""
    for node in weight.consumers():
        is_weight = node.op_type == "Linear" and node.inputs[1] is weight and not int_attribute(node, "transposed", 0)
        if is_weight and node in lowering.needed and _makes_logits(node.outputs[0]):
            return lowering.linear([weight], is_head=True)
    return None


def _makes_logits(value: ir.Value) -> bool:
    """Whether no further linear layer stands between the value and the network's output."""
    seen, pending = {value}, [value]
    while pending:
        for node in pending.pop().consumers():
            if node.op_type in ("Linear", "GatedMLP", "MatMul", "Gemm", "PagedAttention"):
                return False
            fresh = [out for out in node.outputs if out not in seen]
            seen.update(fresh)
            pending += fresh
    return True


@lowers("GatedMLP", domain=DOMAIN)
def _gated_mlp(lowering: Lowering, node: ir.Node) -> None:
    x, gate, up, gate_bias, up_bias = _inputs(node, 5)
    out = node.outputs[0]
    rows = lowering.matrix(lowering.view(_required(x)))
    y = lowering.new(out)
    call = GatedMlpCall(
        name=path_of(node),
        x=rows,
        weight=lowering.linear(
            [_weight(lowering, gate), _weight(lowering, up)], transposed=bool(int_attribute(node, "transposed", 0))
        ),
        gate_bias=None if gate_bias is None else lowering.plain_view(gate_bias),
        up_bias=None if up_bias is None else lowering.plain_view(up_bias),
        activation=_activation(node),
        y=lowering.matrix(y),
        rows=rows.shape[0],
    )
    lowering.emit(call)
    lowering.assign(out, y)


@lowers("PagedAttention", domain=DOMAIN)
def _attention(lowering: Lowering, node: ir.Node) -> None:
    q, k, v, sinks = _inputs(node, 4)
    if int_attribute(node, "chunk", 0):
        raise Unsupported("chunked attention")
    if not int_attribute(node, "causal", 1):
        raise Unsupported("attention that is not causal")
    queries, keys, values = (_attention_heads(lowering, _required(value)) for value in (q, k, v))
    out = node.outputs[0]
    target = lowering.new(out)
    config, kv_heads = lowering.config, keys.shape[1].count
    key_scales, value_scales = _kv_scales(lowering, node, kv_heads)
    layer = CacheLayer(
        index=int_attribute(node, "cache_layer", len(lowering.program.layers)),
        heads=queries.shape[1].count,
        kv_heads=kv_heads,
        k_dim=keys.shape[2].count,
        v_dim=values.shape[2].count,
        window=int_attribute(node, "window", 0),
        dtype=KvDtype(config.kv_cache or config.dtype),
        key_scales=key_scales,
        value_scales=value_scales,
    )
    if layer.heads % layer.kv_heads or values.shape[1] != keys.shape[1]:
        raise Unsupported(f"{layer.heads} query heads over {layer.kv_heads} key heads")
    lowering.program.layers.append(layer)
    call = AttentionCall(
        name=path_of(node),
        q=queries,
        k=keys,
        v=values,
        out=lowering.heads(target),
        sinks=None if sinks is None else lowering.plain_view(sinks),
        layer=layer.index,
        scale=float_attribute(node, "scale", layer.k_dim**-0.5),
        softcap=float_attribute(node, "softcap", 0.0),
        window=layer.window,
    )
    lowering.emit(call)
    lowering.assign(out, target)


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
        views.append(lowering.vector(f"{module}.{name}", np.array(np.broadcast_to(values, kv_heads))))
    return views[0], views[1]


def _attention_heads(lowering: Lowering, value: ir.Value) -> View:
    shape = lowering.shape(value)
    if len(shape) != 4 or not shape[0].is_one or shape[2].symbol is not Symbol.TOKENS or shape[2].count != 1:
        raise Unsupported(f"attention over {value.name!r}, whose shape is not [1, heads, T, head_dim]")
    return lowering.heads(lowering.view(value))


@lowers("RotaryEmbedding", domain=DOMAIN)
def _rotary(lowering: Lowering, node: ir.Node) -> None:
    x, cos, sin = (_required(value) for value in _inputs(node, 3))
    style = str_attribute(node, "style", "neox")
    if style not in ROTARY_STYLES:
        raise Unsupported(f"rotary style {style!r}")
    view = lowering.view(x)
    tables = [lowering.matrix(lowering.view(value)) for value in (cos, sin)]
    if any(table.shape[0].symbol is not Symbol.TOKENS for table in tables):
        raise Unsupported("its angles are not one row a token")
    heads = lowering.heads(view)
    out = node.outputs[0]
    in_place = heads.buffer is view.buffer and lowering.may_overwrite(x, node)
    target = view if in_place else lowering.new(out)
    call = RotaryCall(
        name=path_of(node),
        x=heads,
        cos=tables[0],
        sin=tables[1],
        y=heads if in_place else lowering.heads(target),
        style=style,
        rotary_dim=int_attribute(node, "rotary_dim", heads.shape[2].count),
        cos_stride=int_attribute(node, "cos_stride", 1),
    )
    lowering.emit(call)
    lowering.assign(out, target)


@lowers("RMSNorm", domain=DOMAIN)
def _rms_norm(lowering: Lowering, node: ir.Node) -> None:
    x, weight = _inputs(node, 2)
    scale = None if weight is None else lowering.plain_view(weight, add=float_attribute(node, "offset", 0.0))
    _norm(lowering, node, "rms_norm", _required(x), scale, None, float_attribute(node, "epsilon", 1e-5))


@lowers("RMSNormalization")
def _standard_rms_norm(lowering: Lowering, node: ir.Node) -> None:
    x, weight = _inputs(node, 2)
    _last_axis_only(lowering, node)
    scale = lowering.plain_view(_required(weight))
    _norm(lowering, node, "rms_norm", _required(x), scale, None, float_attribute(node, "epsilon", 1e-5))


@lowers("LayerNormalization")
def _layer_norm(lowering: Lowering, node: ir.Node) -> None:
    x, weight, bias = _inputs(node, 3)
    _last_axis_only(lowering, node)
    scale, shift = (None if value is None else lowering.plain_view(value) for value in (weight, bias))
    _norm(lowering, node, "layer_norm", _required(x), scale, shift, float_attribute(node, "epsilon", 1e-5))


def _last_axis_only(lowering: Lowering, node: ir.Node) -> None:
    rank = len(lowering.shape(_required(node.inputs[0])))
    if int_attribute(node, "axis", -1) % rank != rank - 1:
        raise Unsupported("normalization over more than the last axis")
    if any(out.consumers() for out in node.outputs[1:]):
        raise Unsupported("the mean and deviation of a normalization as outputs")


def _norm(
    lowering: Lowering, node: ir.Node, kind: str, x: ir.Value, weight: View | None, bias: View | None, epsilon: float
) -> None:
    out = node.outputs[0]
    heads = lowering.heads(lowering.view(x))
    weight, bias = (_flat(lowering, view, heads.shape[2].count) for view in (weight, bias))
    y = lowering.new(out)
    target = lowering.heads(y)
    call = NormCall(path_of(node), kind, heads, None, weight, bias, epsilon, target, None, heads.shape[0])
    lowering.emit(call)
    lowering.assign(out, y)


def _flat(lowering: Lowering, view: View | None, size: int) -> View | None:
    if view is not None and product(view.shape).count != size:
        raise Unsupported(f"a norm over {size} elements whose weight has {product(view.shape)}")
    return view


@lowers("SkipRMSNorm", "SkipLayerNorm", domain=DOMAIN)
def _skip_norm(lowering: Lowering, node: ir.Node) -> None:
    x, skip, weight, bias = _inputs(node, 4)
    kind = "skip_rms_norm" if node.op_type == "SkipRMSNorm" else "skip_layer_norm"
    rows, skipped = (lowering.matrix(lowering.view(_required(value))) for value in (x, skip))
    offset = float_attribute(node, "offset", 0.0)
    y, total = (lowering.new(out) for out in node.outputs[:2])
    call = NormCall(
        name=path_of(node),
        kind=kind,
        x=rows,
        skip=skipped,
        weight=None if weight is None else lowering.plain_view(weight, add=offset),
        bias=None if bias is None else lowering.plain_view(bias),
        epsilon=float_attribute(node, "epsilon", 1e-5),
        y=lowering.matrix(y),
        total=lowering.matrix(total),
        rows=rows.shape[0],
    )
    lowering.emit(call)
    for out, view in zip(node.outputs, (y, total), strict=False):
        lowering.assign(out, view)


def _weight(lowering: Lowering, value: ir.Value | None) -> ir.Value:
    value = _required(value)
    if not lowering.is_static(value) or len(lowering.shape(value)) != 2:
        raise Unsupported(f"its weight {value.name!r} is not a matrix known at build time")
    return value


def _activation(node: ir.Node) -> str:
    activation = str_attribute(node, "activation", "")
    if activation not in ACTIVATIONS:
        raise Unsupported(f"activation {activation!r}")
    return activation


def _inputs(node: ir.Node, count: int) -> list[ir.Value | None]:
    """The node's inputs, padded with None for the optional ones that are absent."""
    inputs = list(node.inputs)[:count]
    return inputs + [None] * (count - len(inputs))


def _required(value: ir.Value | None) -> ir.Value:
    if value is None:
        raise Unsupported("an input is absent")
    return value
