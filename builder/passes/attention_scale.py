"""Let attention apply a factor that the model puts on queries or keys beforehand.

Requires: constants as initializers.
Ensures: a query or key is not a multiple of another value by a constant number, also through reshapes, transposes and
rotary embeddings (all linear) that nothing else reads: the attention's scale takes the number. Counts factors folded.
"""

import onnx_ir as ir

from . import graph as g


def fold_attention_scales(graph: ir.Graph) -> int:
    attentions = [node for node in graph if g.is_op(node, "PagedAttention", domain=g.DOMAIN)]
    return sum(_fold(node, position) for node in attentions for position in (0, 1))


def _fold(attention: ir.Node, position: int) -> bool:
    value = attention.inputs[position]
    while value is not None and (node := value.producer()) is not None and g.sole_consumer(value) is not None:
        factor = _factor(node)
        if factor is not None:
            source, number = factor
            scale = attention.attributes.get_float("scale", 1.0) * number
            attention.attributes["scale"] = ir.AttrFloat32("scale", scale)
            g.replace(value, source)
            return True
        if not g.is_op(node, "Transpose", "Reshape") and not g.is_op(node, "RotaryEmbedding", domain=g.DOMAIN):
            return False
        value = node.inputs[0]
    return False


def _factor(node: ir.Node) -> tuple[ir.Value, float] | None:
    """The value and the number that `node` multiplies."""
    if not g.is_op(node, "Mul", "Div"):
        return None
    first, second = node.inputs
    if first is not None and (number := g.scalar(second)) and g.same_type(first, node.outputs[0]):
        return first, number if g.is_op(node, "Mul") else 1.0 / number
    if second is not None and g.is_op(node, "Mul") and (number := g.scalar(first)):
        return (second, number) if g.same_type(second, node.outputs[0]) else None
    return None
