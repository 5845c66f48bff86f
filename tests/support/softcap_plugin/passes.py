"""The pass that makes SoftCap."""

import onnx_ir as ir

from enginesmith.builder.passes import graph as g


def fuse_softcaps(graph: ir.Graph) -> int:
    """Mul(Tanh(Div(x, cap)), cap) becomes SoftCap(x)."""
    return sum(_fuse(node) for node in list(graph) if node.graph is not None and g.is_op(node, "Tanh"))


def _fuse(tanh: ir.Node) -> bool:
    divided = tanh.inputs[0].producer() if tanh.inputs[0] is not None else None
    product = g.sole_consumer(tanh.outputs[0])
    if divided is None or product is None or not g.is_op(divided, "Div") or not g.is_op(product, "Mul"):
        return False
    x, cap = divided.inputs[0], g.scalar(divided.inputs[1])
    shape = None if x is None else g.dims(x)
    if shape is None or cap is None or g.scalar(g.other_input(product, tanh.outputs[0])) != cap:
        return False
    fused = g.insert_before(product, "SoftCap", [x], [shape], {"cap": cap}, domain=g.DOMAIN)
    g.replace(product.outputs[0], fused.outputs[0])
    return True


PASSES = {"softcap": fuse_softcaps}
