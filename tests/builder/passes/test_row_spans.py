"""Row spans agree with evaluating the derived value."""

import numpy as np
import onnx_ir as ir
import pytest

from enginesmith.builder.passes import derived
from enginesmith.builder.passes.row_spans import row_spans

SHAPES = {"a": (5, 4), "b": (3, 4), "square": (4, 4)}
WEIGHTS = {
    name: np.random.default_rng(i).standard_normal(shape).astype(np.float32)
    for i, (name, shape) in enumerate(SHAPES.items())
}


def value(name: str, shape: tuple[int, ...]) -> ir.Value:
    made = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))
    if name in SHAPES:
        ir.Graph([], [], nodes=[], initializers=[made])
    return made


def numbers(*items: int) -> ir.Value:
    made = ir.Value(
        name=f"numbers_{items}", const_value=ir.tensor(np.array(items, np.int64)), shape=ir.Shape((len(items),))
    )
    made.name = f"numbers_{'_'.join(map(str, items))}"
    ir.Graph([], [], nodes=[], initializers=[made])
    return made


def parameter(name: str) -> ir.Value:
    return value(name, SHAPES[name])


def apply(op: str, inputs: list[ir.Value], shapes: list[tuple[int, ...]], **attributes: int) -> list[ir.Value]:
    node = ir.node(op, inputs, attributes=attributes, num_outputs=len(shapes))
    for output, shape in zip(node.outputs, shapes, strict=True):
        output.shape, output.type = ir.Shape(shape), ir.TensorType(ir.DataType.FLOAT)
    return list(node.outputs)


def concat(*inputs: ir.Value, axis: int = 0) -> ir.Value:
    shape = [int(size) for size in derived.static_dims(inputs[0]) or ()]
    shape[axis] = sum((derived.static_dims(each) or ())[axis] for each in inputs)
    return apply("Concat", list(inputs), [tuple(shape)], axis=axis)[0]


def cut(source: ir.Value, first: int, last: int, shape: tuple[int, int], axis: int = 0) -> ir.Value:
    return apply("Slice", [source, numbers(first), numbers(last), numbers(axis)], [shape])[0]


def test_a_parameter() -> None:
    assert row_spans(parameter("a")) == [("a", 0, 5)]


@pytest.mark.parametrize(
    "made",
    [
        lambda: concat(parameter("a"), parameter("b"), parameter("a")),
        lambda: cut(parameter("a"), 1, 4, (3, 4)),
        lambda: cut(parameter("a"), -2, 9, (2, 4)),
        lambda: cut(concat(parameter("a"), parameter("b")), 4, 7, (3, 4)),
        lambda: concat(cut(parameter("a"), 1, 2, (1, 4)), parameter("b")),
        lambda: apply("Split", [concat(parameter("a"), parameter("b"))], [(4, 4), (4, 4)], axis=0)[1],
        lambda: cut(parameter("a"), 0, 4, (5, 4), axis=1),
    ],
)
def test_spans_are_what_the_value_evaluates_to(made) -> None:
    item = made()
    spans = row_spans(item)
    assert spans is not None
    rows = np.concatenate([WEIGHTS[span.parameter][span.first : span.last] for span in spans])
    np.testing.assert_array_equal(rows, derived.compute(item, WEIGHTS.__getitem__))


@pytest.mark.parametrize(
    "made",
    [
        lambda: concat(parameter("square"), parameter("square"), axis=1),
        lambda: cut(parameter("a"), 1, 3, (5, 2), axis=1),
        lambda: apply("Transpose", [parameter("square")], [(4, 4)])[0],
        lambda: apply("Mul", [parameter("a"), parameter("a")], [(5, 4)])[0],
        lambda: apply("Split", [parameter("a")], [(5, 2), (5, 2)], axis=1)[0],
        lambda: concat(parameter("a"), apply("Neg", [parameter("b")], [(3, 4)])[0]),
        lambda: apply("Slice", [parameter("a"), numbers(0), numbers(5), numbers(0), numbers(2)], [(3, 4)])[0],
        lambda: apply("Slice", [parameter("a"), numbers(4), numbers(-9), numbers(0), numbers(-1)], [(5, 4)])[0],
    ],
)
def test_anything_else_has_no_spans(made) -> None:
    assert row_spans(made()) is None
