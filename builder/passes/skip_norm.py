"""Fuse a residual sum with the norm that reads it.

Requires: residuals already absorbed by Linears where possible; norm offsets folded.
Ensures: an Add of two values of the same shape, read by a norm over the last axis and by something else as well, is a
SkipRMSNorm or SkipLayerNorm with outputs (norm, sum). A sum that only the norm reads stays an Add. Counts norms fused.
"""

import onnx_ir as ir

from . import graph as g


def fuse_skip_norms(graph: ir.Graph) -> int:
    count = sum(_fuse(node) for node in list(graph) if node.graph is not None and g.is_op(node, "Add"))
    if count:
        graph.sort()
    return count


def _fuse(add: ir.Node) -> bool:
    total = add.outputs[0]
    norm = next((node for node in total.consumers() if _is_norm_of(node, total)), None)
    shared = len(total.uses()) > 1 or total.is_graph_output()
    if norm is None or not shared or not all(v is not None and g.same_type(v, total) for v in add.inputs):
        return False
    shape = g.dims(total)
    assert shape is not None
    is_rms = norm.op_type == "RMSNorm"
    fused = g.insert_before(
        norm,
        "SkipRMSNorm" if is_rms else "SkipLayerNorm",
        [*add.inputs, *norm.inputs[1:]],
        [shape, shape],
        {"epsilon": norm.attributes.get_float("epsilon", 1e-5)},
        domain=g.DOMAIN,
        name=norm.name,
    )
    g.replace(norm.outputs[0], fused.outputs[0])
    g.replace(total, fused.outputs[1])
    return True


def _is_norm_of(node: ir.Node, value: ir.Value) -> bool:
    if node.inputs[0] is not value or not g.same_type(node.outputs[0], value):
        return False
    if g.is_op(node, "RMSNorm", domain=g.DOMAIN):
        return node.attributes.get_float("offset", 0.0) == 0.0
    return (
        g.is_op(node, "LayerNormalization")
        and g.is_last_axis(node.attributes.get_int("axis", -1), value)
        and not any(output.uses() for output in node.outputs[1:])
    )
