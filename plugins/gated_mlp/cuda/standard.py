"""GatedMLP in standard ONNX."""

import onnx_ir as ir

from ....builder.lowering.nodes import parsed
from ....builder.lowering.program import LinearWeight
from ....builder.targets.cuda.source.standard import Form, Setting, StandardGraph
from ...linear.cuda.standard import activated, biased, product, refuses
from ..lower import weight_of


def _weight(setting: Setting, node: ir.Node) -> LinearWeight:
    return weight_of(setting.weights, node)


def _refuses(setting: Setting, node: ir.Node) -> str:
    return refuses(_weight(setting, node), setting)


def _write(graph: StandardGraph, node: ir.Node) -> list[ir.Value]:
    (x, _, _, *biases), attributes = parsed(node)
    weight = _weight(graph.setting, node)
    products = (product(graph, node, graph.of(x), weight, number) for number in range(2))
    gate, up = (biased(graph, y, bias) for y, bias in zip(products, biases, strict=True))
    return [graph.op("Mul", activated(graph, gate, attributes.activation), up)]


FORMS = {"GatedMLP": Form(_write, _refuses, _weight)}
