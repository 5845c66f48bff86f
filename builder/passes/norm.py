"""Recognise norms written out as means and square roots.

Requires: constants as initializers.
Ensures: x / sqrt(mean(x^2) + epsilon) over the last axis is RMSNorm, (x - mean(x)) / sqrt(variance + epsilon) is
LayerNormalization, however they are spelled, when nothing else reads what lies in between; a following product with a
derived weight [D] becomes the weight. What a piece computes is decided by evaluating it on samples. Counts norms.
"""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from . import graph as g
from . import numpy_ops
from .derived import is_derived
from .probe import pieces

_TOLERANCE = 1e-6


def _rms(x: np.ndarray, epsilon: float) -> np.ndarray:
    return x / np.sqrt(np.mean(x**2, -1, keepdims=True) + epsilon)


def _layer(x: np.ndarray, epsilon: float) -> np.ndarray:
    return _rms(x - x.mean(-1, keepdims=True), epsilon)


_NORMS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {"RMSNorm": _rms, "LayerNormalization": _layer}


def fuse_norms(graph: ir.Graph) -> int:
    return sum(_fuse(node) for node in list(graph) if node.graph is not None and _is_mean(node))


def _fuse(mean: ir.Node) -> bool:
    """Starts from a mean of x (layer norm) or of its squares (RMS norm)."""
    summed = mean.inputs[0]
    squares = None if summed is None else summed.producer()
    starts = [summed, squares.inputs[0] if squares is not None and squares.inputs else None]
    for x in starts:
        found = None if x is None or is_derived(x) else _recognise(x)
        if x is not None and found is not None:
            _replace(x, *found)
            return True
    return False


def _recognise(x: ir.Value) -> tuple[str, float, ir.Value] | None:
    """The norm of `x` that the graph computes: operation, epsilon, result."""
    shape = g.dims(x)
    if shape is None or not isinstance(shape[-1], int) or shape[-1] < 2:
        return None
    rng = np.random.default_rng(0)
    samples = np.logspace(-4, 2, 7)[:, None] * (rng.standard_normal((7, shape[-1])) + 0.5)
    for piece in pieces(x, samples, _is_followed, _evaluate):
        for epsilon in sorted({number for number in piece.numbers if 0 < number < 0.1}):
            for name, function in _NORMS.items():
                if np.allclose(piece.samples, function(samples, epsilon), _TOLERANCE, _TOLERANCE):
                    return name, epsilon, piece.result
    return None


def _replace(x: ir.Value, name: str, epsilon: float, result: ir.Value) -> None:
    producer, shape = result.producer(), g.dims(x)
    assert producer is not None
    assert producer.graph is not None
    assert shape is not None
    scaled = g.sole_consumer(result)
    anchor, weight = producer, None
    if scaled is not None and g.is_op(scaled, "Mul") and g.same_type(scaled.outputs[0], x):
        factor = g.other_input(scaled, result)
        if g.static_dims(factor) == (shape[-1],) and is_derived(factor):
            anchor, weight, result = scaled, factor, scaled.outputs[0]
    attributes: dict[str, int | float] = {"epsilon": epsilon}
    domain = g.DOMAIN
    if name == "LayerNormalization":  # which has to have a scale
        domain, attributes["axis"] = "", -1
        weight = weight or g.add_constant(producer.graph, np.ones(int(shape[-1]), np.float32), f"ones_{shape[-1]}")
    module = g.module_name([weight] if weight is not None and g.is_parameter(weight) else [], producer.name)
    node = g.insert_before(anchor, name, [x, weight], [shape], attributes, domain=domain, name=module)
    g.replace(result, node.outputs[0])


def _is_mean(node: ir.Node) -> bool:
    """Whether the node reduces the last axis alone, and keeps it."""
    axes = g.constant(g.optional_input(node, 1))
    source = node.inputs[0] if node.inputs else None
    return (
        g.is_op(node, "ReduceMean", "ReduceSum")
        and source is not None
        and axes is not None
        and axes.size == 1
        and g.is_last_axis(int(axes.reshape(())), source)
        and bool(node.attributes.get_int("keepdims", 1))
    )


def _is_followed(node: ir.Node) -> bool:
    return _is_mean(node) or (g.is_op(node, *numpy_ops.ELEMENTWISE) and node.op_type != "Cast")


def _evaluate(node: ir.Node, inputs: list[np.ndarray | None]) -> np.ndarray:
    if _is_mean(node):
        x = inputs[0]
        assert x is not None
        return x.mean(-1, keepdims=True) if node.op_type == "ReduceMean" else x.sum(-1, keepdims=True)
    return numpy_ops.apply(node, inputs)[0]
