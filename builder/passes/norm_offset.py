"""Fold the offset of an RMSNorm into its weight, so that kernels know only y = n * weight.

Requires: RMSNorm nodes of the enginesmith domain.
Ensures: no RMSNorm has an offset: n * (w + offset) reads the derived parameter Add(w, offset). Counts norms changed.
"""

import numpy as np
import onnx_ir as ir

from .graph import DOMAIN, add_constant, dims, insert_before, is_op, optional_input


def fold_norm_offsets(graph: ir.Graph) -> int:
    return sum(_fold(graph, node) for node in list(graph) if is_op(node, "RMSNorm", domain=DOMAIN))


def _fold(graph: ir.Graph, node: ir.Node) -> bool:
    offset = node.attributes.get_float("offset", 0.0)
    weight = optional_input(node, 1)
    shape = None if weight is None else dims(weight)
    if offset == 0.0 or weight is None or shape is None:
        return False
    amount = add_constant(graph, np.array(offset, np.float32), f"offset_{offset:g}")
    name = f"{weight.name}+{offset:g}"
    shifted = insert_before(node, "Add", [weight, amount], [shape], name=name)
    shifted.outputs[0].name = name
    node.replace_input_with(1, shifted.outputs[0])
    node.attributes["offset"] = ir.AttrFloat32("offset", 0.0)
    return True
