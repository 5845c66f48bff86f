"""RotaryEmbedding in standard ONNX."""

import numpy as np
import onnx_ir as ir

from ....builder.lowering.nodes import parsed
from ....builder.targets.cuda.source.standard import Form, Setting, StandardGraph
from ..reference import RotaryStyle


def _refuses(setting: Setting, node: ir.Node) -> str:
    style = parsed(node)[1].style
    return f"the order of elements {style}" if style is RotaryStyle.GPTJ_TO_NEOX else ""


def _write(graph: StandardGraph, node: ir.Node) -> list[ir.Value]:
    """The standard operation has heads before tokens."""
    values, attributes = parsed(node)
    x, *tables = (graph.of(value) for value in values)
    half, step = attributes.rotary_dim // 2, attributes.cos_stride
    ends = [graph.constant(np.array([number], np.int64)) for number in (0, (half - 1) * step + 1, 2, step)]
    angles = [graph.op("Slice", table, *ends) for table in tables]
    turn = attributes.heads_axis == 2
    if turn:
        x = graph.op("Transpose", x, perm=[0, 2, 1, 3])
    interleaved = int(attributes.style is RotaryStyle.GPTJ)
    y = graph.op("RotaryEmbedding", x, *angles, interleaved=interleaved, rotary_embedding_dim=attributes.rotary_dim)
    return [graph.op("Transpose", y, perm=[0, 2, 1, 3]) if turn else y]


FORMS = {"RotaryEmbedding": Form(_write, _refuses)}
