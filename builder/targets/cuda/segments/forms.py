"""What of a network TensorRT gets: operations of plugins that say how they are written, and plain ones as they are."""

from functools import cache

import onnx_ir as ir

from .....plugins.discovery import plugins
from .....plugins.plugin import DOMAIN
from ....lowering.dims import Symbol
from ....lowering.facts import Unsupported
from ....lowering.nodes import float_attribute, int_attribute, required
from ....operations import standard_operations
from ..source.standard import Form, Forms, Setting, StandardGraph

_NOT_IN_TENSORRT = {"BitwiseAnd", "BitwiseOr", "BitwiseNot"}
_AS_THEY_ARE = (
    "Softmax", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "Reshape", "Transpose", "Split", "Slice", "Concat",
)  # fmt: skip
_TYPES = {ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL}


def form_of(node: ir.Node) -> Form | None:
    return _forms(node.domain).get(node.op_type)


def refusal(setting: Setting, node: ir.Node) -> str:
    """Why the node stays with kernels of our own; "" where TensorRT can compute it."""
    form = form_of(node)
    if form is None:
        return "TensorRT has no such operation, or its state is the runtime's"
    try:
        return _mixed(setting, node) or form.refuses(setting, node)
    except Unsupported as error:
        return str(error)


def symbol_of(setting: Setting, node: ir.Node) -> Symbol:
    """What the node's rows are counted in."""
    dims = (dim for dim in setting.facts.shape(node.outputs[0]) if not dim.is_static)
    return next(dims).symbol


def _mixed(setting: Setting, node: ir.Node) -> str:
    """Why the node is not one of rows: all of its tensors have one size that varies, the same."""
    facts = setting.facts
    read = [value for value in node.inputs if value is not None and not facts.is_static(value)]
    found = set()
    for value in (*read, *node.outputs):
        if value.dtype not in _TYPES:
            return f"the element type {value.dtype}"
        varying = [dim for dim in facts.shape(value) if not dim.is_static]
        if len(varying) != 1 or varying[0].count != 1:
            return "a tensor that is not one of rows"
        found.add(varying[0].symbol)
    return "" if len(found) == 1 else "rows of tokens and of logits at once"


def _copy(graph: StandardGraph, node: ir.Node) -> list[ir.Value]:
    """The node as it is."""
    attributes = list(node.attributes.values())
    inputs = [None if value is None else graph.of(value) for value in node.inputs]
    copy = ir.Node("", node.op_type, inputs, attributes, num_outputs=len(node.outputs))
    graph.nodes.append(copy)
    return list(copy.outputs)


def _normalize(graph: StandardGraph, node: ir.Node) -> list[ir.Value]:
    """Without its other results, which nothing reads."""
    epsilon = float_attribute(node, "epsilon", 1e-5)
    inputs = [graph.of(value) for value in node.inputs if value is not None]
    return [graph.op("LayerNormalization", *inputs, axis=-1, epsilon=epsilon)]


def _refuses_normalization(setting: Setting, node: ir.Node) -> str:
    rank = len(setting.facts.shape(required(node, 0)))
    is_last = int_attribute(node, "axis", -1) % rank == rank - 1
    return "" if is_last and len(node.outputs) == 1 else "a normalization over other than the last axis"


@cache
def _forms(domain: str) -> Forms:
    if domain == DOMAIN:
        found = [plugin.attribute("cuda.standard", "FORMS") or {} for plugin in plugins()]
        return {name: form for forms in found for name, form in forms.items()}
    if domain:
        return {}
    plain = [name for name, traits in standard_operations().items() if traits.elementwise]
    names = [name for name in (*plain, *_AS_THEY_ARE) if name not in _NOT_IN_TENSORRT]
    return {**dict.fromkeys(names, Form(_copy)), "LayerNormalization": Form(_normalize, _refuses_normalization)}
