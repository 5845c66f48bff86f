"""RMSNorm, SkipRMSNorm and SkipLayerNorm in standard ONNX."""

import numpy as np
import onnx_ir as ir

from ....builder.lowering.nodes import parsed
from ....builder.targets.cuda.source.standard import Form, StandardGraph
from ..op import RMSNormAttributes


def _scale(graph: StandardGraph, x: ir.Value, weight: ir.Value | None, offset: float = 0.0) -> ir.Value:
    """float32 [D]."""
    if weight is not None:
        return graph.constant((graph.static(weight) + np.float32(offset)).reshape(-1))
    return graph.constant(np.ones(graph.setting.facts.shape(x)[-1].count, np.float32))


def _rms_norm(graph: StandardGraph, x: ir.Value, scale: ir.Value, attributes: RMSNormAttributes) -> ir.Value:
    return graph.op("RMSNormalization", x, scale, axis=-1, epsilon=attributes.epsilon)


def _write(graph: StandardGraph, node: ir.Node) -> list[ir.Value]:
    (x, weight), attributes = parsed(node)
    return [_rms_norm(graph, graph.of(x), _scale(graph, x, weight, attributes.offset), attributes)]


def _write_skip(graph: StandardGraph, node: ir.Node) -> list[ir.Value]:
    (x, skip, weight), attributes = parsed(node)
    total = graph.op("Add", graph.of(x), graph.of(skip))
    return [_rms_norm(graph, total, _scale(graph, x, weight, attributes.offset), attributes), total]


def _write_skip_layer(graph: StandardGraph, node: ir.Node) -> list[ir.Value]:
    (x, skip, weight, bias), attributes = parsed(node)
    total = graph.op("Add", graph.of(x), graph.of(skip))
    vectors = [_scale(graph, x, weight), *([] if bias is None else [graph.of(bias)])]
    return [graph.op("LayerNormalization", total, *vectors, axis=-1, epsilon=attributes.epsilon), total]


FORMS = {"RMSNorm": Form(_write), "SkipRMSNorm": Form(_write_skip), "SkipLayerNorm": Form(_write_skip_layer)}
