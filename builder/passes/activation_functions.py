"""Recognise activation functions by what they compute, not by how they are written.

From a value, the element-wise nodes that depend on it and on scalars alone are followed until a single value is left
alive; that piece is then evaluated on sample points and compared with the functions the kernels know. Any spelling of
a function is found this way: x * sigmoid(x), Gelu, 0.5 * x * (1 + tanh(...)), Relu squared by Mul or by Pow.
"""

import numpy as np
import onnx_ir as ir

from ...plugins.linear.activation_function import ActivationFunction
from . import numpy_ops
from .graph import is_op
from .probe import pieces

_SAMPLES = np.concatenate([np.linspace(-12.0, 12.0, 193), [-60.0, -30.0, -1e-3, 1e-3, 30.0, 60.0]])
_TOLERANCE = 2e-6  # of max(1, |y|): float32 constants of the formulas differ by less, gelu and gelu_tanh by 5e-4
_EXPECTED = {function: function(_SAMPLES) for function in ActivationFunction if function is not ActivationFunction.NONE}


def recognise(value: ir.Value) -> tuple[ActivationFunction, ir.Value] | None:
    """The activation function that all readers of `value` compute together (the longest), and its result, or None.

    Nothing but the function reads `value` or its inner values, so that all of it can be replaced.
    """
    found = None
    for piece in pieces(value, _SAMPLES, _is_elementwise, _evaluate):
        if not piece.is_exclusive:
            continue
        for activation, expected in _EXPECTED.items():
            if np.all(np.abs(piece.samples - expected) <= _TOLERANCE * np.maximum(1.0, np.abs(expected))):
                found = activation, piece.result
    return found


def _is_elementwise(node: ir.Node) -> bool:
    return is_op(node, *numpy_ops.ELEMENTWISE) and node.op_type != "Cast"


def _evaluate(node: ir.Node, inputs: list[np.ndarray | None]) -> np.ndarray:
    return numpy_ops.apply(node, inputs)[0]
