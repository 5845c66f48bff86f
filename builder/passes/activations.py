"""Recognise activation functions by what they compute, not by how they are written.

From a value, the element-wise nodes that depend on it and on scalars alone are followed until a single value is left
alive; that piece is then evaluated on sample points and compared with the functions the kernels know. Any spelling of
a function is found this way: x * sigmoid(x), Gelu, 0.5 * x * (1 + tanh(...)), Relu squared by Mul or by Pow.
"""

from collections.abc import Callable
from enum import StrEnum

import numpy as np
import onnx_ir as ir

from . import numpy_ops
from .graph import constant, same_type, scalar


class Activation(StrEnum):
    """The functions that Linear and GatedMLP can apply; values as in the attribute `activation`."""

    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    SILU = "silu"
    RELU = "relu"
    RELU2 = "relu2"
    QUICK_GELU = "quick_gelu"
    TANH = "tanh"
    SIGMOID = "sigmoid"


FUNCTIONS: dict[Activation, Callable[[np.ndarray], np.ndarray]] = {
    Activation.GELU: numpy_ops.gelu,
    Activation.GELU_TANH: numpy_ops.gelu_tanh,
    Activation.SILU: lambda x: x * numpy_ops.sigmoid(x),
    Activation.RELU: lambda x: np.maximum(x, 0),
    Activation.RELU2: lambda x: np.maximum(x, 0) ** 2,
    Activation.QUICK_GELU: lambda x: x * numpy_ops.sigmoid(1.702 * x),
    Activation.TANH: np.tanh,
    Activation.SIGMOID: numpy_ops.sigmoid,
}

_MAX_NODES = 16
_SAMPLES = np.concatenate([np.linspace(-12.0, 12.0, 193), [-60.0, -30.0, -1e-3, 1e-3, 30.0, 60.0]])
_TOLERANCE = 2e-6  # of max(1, |y|): float32 constants of the formulas differ by less, gelu and gelu_tanh by 5e-4


def recognise(value: ir.Value) -> tuple[Activation, ir.Value] | None:
    """The longest activation that everything reading `value` amounts to, and its result; None if it is not one.

    Nothing but the activation reads `value` or its inner values, so that all of it can be replaced.
    """
    found = None
    for result, samples in _single_values(value):
        for activation, function in FUNCTIONS.items():
            expected = function(_SAMPLES)
            if np.all(np.abs(samples - expected) <= _TOLERANCE * np.maximum(1.0, np.abs(expected))):
                found = activation, result
    return found


def _single_values(value: ir.Value) -> list[tuple[ir.Value, np.ndarray]]:
    """Every value that alone carries on what was computed from `value`, with its samples."""
    samples = {value: _SAMPLES}
    inside: set[ir.Node] = set()
    singles = []
    while len(inside) < _MAX_NODES and (node := _next_node(samples, inside)) is not None:
        inputs = [samples[operand] if operand in samples else _number(operand) for operand in node.inputs]
        with np.errstate(all="ignore"):
            samples[node.outputs[0]] = numpy_ops.apply(node, inputs)[0]
        inside.add(node)
        alive = [v for v in samples if v.is_graph_output() or any(use.node not in inside for use in v.uses())]
        if alive == [node.outputs[0]] and same_type(value, node.outputs[0]):
            singles.append((node.outputs[0], samples[node.outputs[0]]))
    return singles


def _next_node(samples: dict[ir.Value, np.ndarray], inside: set[ir.Node]) -> ir.Node | None:
    """An element-wise node that reads only sampled values and scalars."""
    for value in samples:
        for node in value.consumers():
            if (
                node not in inside
                and node.domain == ""
                and node.op_type in numpy_ops.ELEMENTWISE
                and node.op_type != "Cast"
                and all(v is None or v in samples or scalar(v) is not None for v in node.inputs)
            ):
                return node
    return None


def _number(value: ir.Value | None) -> np.ndarray | None:
    array = constant(value)
    return None if array is None else array.astype(np.float64).reshape(())
