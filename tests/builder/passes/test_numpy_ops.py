"""Operations in NumPy against the ONNX reference implementation, edge cases included."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from onnx import helper
from onnx.reference import ReferenceEvaluator

from enginesmith.builder.passes import numpy_ops

OPSET = 23
FLOATS = arrays(np.float32, array_shapes(max_dims=3, max_side=4), elements=st.floats(-8, 8, width=32))
INTEGERS = arrays(np.int64, array_shapes(max_dims=2, max_side=4), elements=st.integers(-9, 9))


def both(op: str, inputs: Sequence[np.ndarray], outputs: int = 1, **attributes: Any) -> None:
    """One node by `numpy_ops` and by the reference: equal values, shapes and dtypes."""
    names = [f"i{i}" for i in range(len(inputs))]
    out = [f"o{i}" for i in range(outputs)]
    node = helper.make_node(op, names, out, **attributes)
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in zip(names, inputs, strict=True)
    ]
    graph = helper.make_graph([node], "g", values, [onnx.ValueInfoProto(name=name) for name in out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    expected: Any = ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))
    found = numpy_ops.apply(next(iter(ir.from_proto(model).graph)), list(inputs))
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


UNARY = ["Abs", "Cos", "Erf", "Exp", "Floor", "Gelu", "Neg", "Relu", "Sigmoid", "Sin", "Softplus", "Tanh"]


@pytest.mark.parametrize("op", UNARY)
@settings(max_examples=15)
@given(x=FLOATS)
def test_elementwise(op: str, x: np.ndarray) -> None:
    both(op, [x])


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Max", "Min", "Equal", "Greater", "LessOrEqual"])
@settings(max_examples=15)
@given(x=FLOATS | INTEGERS)
def test_binary_with_broadcasting(op: str, x: np.ndarray) -> None:
    both(op, [x, x[..., :1]])


@settings(max_examples=60)
@given(x=INTEGERS, y=st.integers(-9, 9).filter(bool))
def test_integer_division_goes_towards_zero(x: np.ndarray, y: int) -> None:
    expected = np.vectorize(lambda value: int(value / y), otypes=[np.int64])(x)
    node = ir.Node("", "Div", [None, None])
    np.testing.assert_array_equal(numpy_ops.apply(node, [x, np.array(y, np.int64)])[0], expected)


@pytest.mark.parametrize(
    ("shape", "target"),
    [((2, 3), (2, 3)), ((3,), (2, 3)), ((2, 3), (1,)), ((2, 1), (1, 4)), ((), (2, 2)), ((0, 1), (0, 3)),
     ((3, 1), (2, 1, 4))],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_expand(shape: tuple[int, ...], target: tuple[int, ...], dtype: type) -> None:
    both("Expand", [np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype), ints(*target)])


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(0, 9, 1), (-3, -1, 1), (9, -9, -1), (-1, -(2**63), -2), (3, 1, 1), (4, 0, -3), (1, 2**62, 2)],
)  # fmt: skip
def test_slice(start: int, end: int, step: int) -> None:
    x = np.arange(10.0, dtype=np.float32).reshape(2, 5)
    both("Slice", [x, ints(start), ints(end), ints(1), ints(step)])


@pytest.mark.parametrize("indices", [[0, -1], [[1], [-2]], []])
@pytest.mark.parametrize("axis", [0, -1])
def test_gather(indices: list[Any], axis: int) -> None:
    both("Gather", [np.arange(6.0, dtype=np.float32).reshape(2, 3), np.array(indices, np.int64)], axis=axis)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"])
@pytest.mark.parametrize(("axes", "keep"), [([0], 1), ([-1], 0), ([0, 1], 1), ([], 1), (None, 0)])
def test_reductions(op: str, axes: list[int] | None, keep: int) -> None:
    inputs = [np.arange(6.0, dtype=np.float32).reshape(2, 3)] + ([ints(*axes)] if axes is not None else [])
    both(op, inputs, keepdims=keep)


@pytest.mark.parametrize("shape", [(3, -1), (0, 2), (-1,), (6, 1)])
def test_reshape(shape: tuple[int, ...]) -> None:
    both("Reshape", [np.arange(6.0, dtype=np.float32).reshape(3, 2), ints(*shape)])


def test_split_transpose_tile_and_concat() -> None:
    x = np.arange(10.0, dtype=np.float32).reshape(2, 5)
    both("Split", [x, ints(1, 4)], outputs=2, axis=1)
    both("Split", [x], outputs=2, axis=-1, num_outputs=2)
    both("Transpose", [x])
    both("Tile", [x, ints(2, 0)])
    both("Concat", [x, x[:0]], axis=0)
