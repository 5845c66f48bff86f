"""Let a rotary embedding pass the rest of a head through, instead of splitting heads and joining them again.

Requires: Splits (splits pass).
Ensures: Concat on the last axis of RotaryEmbedding(first piece) and the second piece of a Split in two on the last axis
is a RotaryEmbedding of the whole, which leaves dimensions past rotary_dim as they are. Counts Concats removed.
"""

import onnx_ir as ir

from . import graph as g
from .rowwise import apply_to


def fuse_partial_rotary(graph: ir.Graph) -> int:
    return sum(_fuse(node) for node in list(graph) if node.graph is not None and g.is_op(node, "Concat"))


def _fuse(concat: ir.Node) -> bool:
    output, shape = concat.outputs[0], g.dims(concat.outputs[0])
    if len(concat.inputs) != 2 or shape is None or not g.is_last_axis(concat.attributes.get_int("axis", 0), output):
        return False
    rotated, rest = concat.inputs
    rotary = None if rotated is None else rotated.producer()
    split = None if rest is None else rest.producer()
    if rotary is None or split is None or g.sole_consumer(rotary.outputs[0]) is not concat:
        return False
    if not g.is_op(rotary, "RotaryEmbedding", domain=g.DOMAIN) or not g.is_op(split, "Split"):
        return False
    source = split.inputs[0]
    if source is None or list(split.outputs) != [rotary.inputs[0], rest] or not g.same_shape(source, output):
        return False
    if not g.is_last_axis(split.attributes.get_int("axis", 0), source):
        return False
    g.replace(output, apply_to(concat, rotary, {0: source}, shape))
    return True
