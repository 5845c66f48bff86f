"""No-ops, views, static shapes, splits, common subexpressions and dead code."""

import numpy as np
import pytest
from known import known

from enginesmith.builder.passes.common_subexpressions import eliminate_common_subexpressions
from enginesmith.builder.passes.dead_code import eliminate_dead_code
from enginesmith.builder.passes.graph import constant
from enginesmith.builder.passes.no_ops import remove_no_ops
from enginesmith.builder.passes.splits import make_splits
from enginesmith.builder.passes.static_shapes import make_shapes_static
from enginesmith.builder.passes.views import merge_views

S = [1, "T", 8]


@pytest.fixture
def x(net):
    return net.input("x", S)


def finish(net, *values):
    net.output(*(net.op("Neg", [value], value.shape, value.dtype) for value in values))


NO_OPS = {
    "identity": lambda net, x: net.op("Identity", [x], S),
    "cast": lambda net, x: net.op("Cast", [x], S, to=1),
    "dropout": lambda net, x: net.op("Dropout", [x, net.constant(0.5)], S),
    "transpose": lambda net, x: net.op("Transpose", [x], S, perm=[0, 1, 2]),
    "slice": lambda net, x: net.op("Slice", [x, *map(net.integers, (0, 2**62, 2, 1))], S),
    "concat": lambda net, x: net.op("Concat", [x], S, axis=1),
    "expand": lambda net, x: net.op("Expand", [x, net.integers(1, 1, 8)], S),
    "mul": lambda net, x: net.op("Mul", [net.constant(1.0), x], S),
    "div": lambda net, x: net.op("Div", [x, net.constant([1.0])], S),
    "add": lambda net, x: net.op("Add", [x, net.constant(0.0)], S),
    "sub": lambda net, x: net.op("Sub", [x, net.constant(0.0)], S),
    "pow": lambda net, x: net.op("Pow", [x, net.constant(1.0)], S),
}
NOT_NO_OPS = {
    "cast": lambda net, x: net.op("Cast", [x], S, 11, to=11),
    "flip": lambda net, x: net.op("Slice", [x, *map(net.integers, (-1, -(2**62), 2, -1))], S),
    "swap": lambda net, x: net.op(
        "Transpose",
        [net.op("Reshape", [x, net.integers(1, -1, 4, 2)], [1, "T", 4, 2])],
        [1, "T", 2, 4],
        perm=[0, 1, 3, 2],
    ),
    "double": lambda net, x: net.op("Mul", [x, net.constant(2.0)], S),
    "negate": lambda net, x: net.op("Sub", [net.constant(0.0), x], S),
    "invert": lambda net, x: net.op("Div", [net.constant(1.0), x], S),
    "power": lambda net, x: net.op("Pow", [net.constant(1.0), x], S),
    "grow": lambda net, x: net.op("Add", [x, net.constant(np.zeros((1, 1, 1, 1)))], [1, *S]),
    "vector": lambda net, x: net.op("Mul", [x, net.constant(np.arange(8.0))], S),
}


@pytest.mark.parametrize("make", NO_OPS.values(), ids=NO_OPS)
def test_no_op(net, check, x, make):
    finish(net, make(net, x))
    assert check(net, remove_no_ops) == 1
    assert [node.op_type for node in net.graph] == ["Neg"]


@pytest.mark.parametrize("make", NOT_NO_OPS.values(), ids=NOT_NO_OPS)
def test_not_a_no_op(net, check, x, make):
    finish(net, make(net, x))
    assert check(net, remove_no_ops) == 0


def test_no_op_that_is_an_output_keeps_the_name(net, check, x):
    y = net.op("Identity", [net.op("Neg", [x], S)], S)
    y.name = "logits"
    net.output(y)
    assert check(net, remove_no_ops) == 1


def test_reshapes_merge(net, check, x):
    y = net.op("Unsqueeze", [x, net.integers(0)], [1, *S])
    y = net.op("Reshape", [y, net.integers(-1, 8)], ["T", 8])
    y = net.op("Reshape", [y, net.integers(1, -1, 4, 2)], [1, "T", 4, 2])
    finish(net, y)
    check(net, merge_views)
    node = net.only("Reshape")
    assert node.inputs[0] is x
    assert known(constant(node.inputs[1])).tolist() == [1, -1, 4, 2]


def test_reshapes_that_return_cancel(net, check, x):
    y = net.op("Reshape", [x, net.integers(-1, 8)], ["T", 8])
    finish(net, net.op("Unsqueeze", [y, net.integers(0)], S))
    check(net, merge_views)
    assert [node.op_type for node in net.graph] == ["Neg"]


def test_transposes_merge(net, check, x):
    y = net.op("Transpose", [x], ["T", 8, 1], perm=[1, 2, 0])
    finish(net, net.op("Transpose", [y], [8, "T", 1], perm=[1, 0, 2]), net.op("Transpose", [y], S, perm=[2, 0, 1]))
    check(net, merge_views)
    assert net.only("Transpose").attributes.get_ints("perm") == (2, 1, 0)


def test_two_symbolic_dimensions_are_left_alone(net, check, x):
    outer = net.op("MatMul", [x, net.op("Transpose", [x], [1, 8, "T"], perm=[0, 2, 1])], [1, "T", "T"])
    finish(net, net.op("Unsqueeze", [outer, net.integers(0)], [1, 1, "T", "T"]))
    assert check(net, merge_views) == 0


def _length(net, x):
    return net.op("Shape", [x], [1], 7, start=1, end=2)


def test_computed_reshape_target(net, check, x):
    shape = net.op("Concat", [net.integers(1), _length(net, x), net.integers(4, 2)], [4], 7, axis=0)
    finish(net, net.op("Reshape", [x, shape], [1, "T", 4, 2], allowzero=1))
    assert check(net, make_shapes_static) == 1
    assert [node.op_type for node in net.graph] == ["Reshape", "Neg"]


def test_computed_expand_target(net, check, x):
    y = net.op("Reshape", [x, net.integers(1, 1, -1, 8)], [1, 1, "T", 8])
    shape = net.op("Concat", [net.integers(1, 3), _length(net, x), net.integers(8)], [4], 7, axis=0)
    finish(net, net.op("Expand", [y, shape], [1, 3, "T", 8]))
    assert check(net, make_shapes_static) == 1
    assert known(constant(net.only("Expand").inputs[1])).tolist() == [1, 3, 1, 8]


def test_expand_to_the_number_of_tokens_stays(net, check, x):
    shape = net.op("Concat", [net.integers(1), _length(net, x), net.integers(8)], [3], 7, axis=0)
    finish(net, net.op("Expand", [net.input("row", [1, 1, 8]), shape], S))
    assert check(net, make_shapes_static) == 0


def test_shape_of_integers(net, check, x):
    y = net.op("Shape", [x], [1], 7, start=2)
    finish(net, y, _length(net, x))
    assert check(net, make_shapes_static) == 1


def test_sequence_of_chunks(net, check, x):
    sequence = net.op("SplitToSequence", [x, net.constant(3, np.int64)], [], axis=-1)
    pieces = [net.op("SequenceAt", [sequence, net.constant(i, np.int64)], [1, "T", n]) for i, n in enumerate((3, 3, 2))]
    finish(net, *pieces)
    assert make_splits(net.graph) == 1
    assert known(constant(net.only("Split").inputs[1])).tolist() == [3, 3, 2]
    assert [output.shape[-1] for output in net.only("Split").outputs] == [3, 3, 2]
    assert net.count("SplitToSequence") == net.count("SequenceAt") == 0


def cut(net, x, start, end, axis=2, step=1):
    size = len(range(*slice(start, end, step).indices(8)))
    return net.op("Slice", [x, *map(net.integers, (start, end, axis, step))], [1, "T", size])


def test_adjoining_slices(net, check, x):
    finish(net, cut(net, x, 4, 2**62), cut(net, x, 0, 3), cut(net, x, 3, 4, axis=-1))
    assert check(net, make_splits) == 1
    assert [output.shape[-1] for output in net.only("Split").outputs] == [3, 1, 4]


SLICES = {"gap": [(0, 3), (4, 8)], "overlap": [(0, 5), (4, 8)], "rest": [(0, 3), (3, 7)], "single": [(0, 8)]}


@pytest.mark.parametrize("bounds", SLICES.values(), ids=SLICES)
def test_other_slices(net, check, x, bounds):
    finish(net, *(cut(net, x, *bound) for bound in bounds))
    assert check(net, make_splits) == 0


def test_interleaved_slices(net, check, x):
    finish(net, cut(net, x, 0, 8, step=2), cut(net, x, 1, 8, step=2))
    assert check(net, make_splits) == 0


def test_common_subexpressions(net, check, x):
    a = net.op("Add", [x, net.constant(2.0)], S)
    b = net.op("Add", [net.constant(2.0), x], S)
    net.output(net.op("Sub", [net.op("Cos", [a], S), net.op("Sin", [net.op("Cos", [b], S)], S)], S))
    assert check(net, eliminate_common_subexpressions) == 2
    assert net.count("Cos") == 1


def test_different_expressions(net, check, x):
    a = net.op("Softmax", [x], S, axis=2)
    b = net.op("Softmax", [x], S, axis=1)
    two = net.constant(2.0)
    finish(net, a, b, net.op("Sub", [x, two], S), net.op("Sub", [two, x], S))
    assert check(net, eliminate_common_subexpressions) == 0


def test_attention_is_not_shared(net, check):
    q = net.input("q", [1, 2, "T", 4])
    attrs = {"cache_layer": 0, "scale": 1.0, "causal": 1}
    finish(net, *(net.op("enginesmith::PagedAttention", [q, q, q], [1, "T", 2, 4], **attrs) for _ in range(2)))
    assert check(net, eliminate_common_subexpressions) == 0


def test_dead_code(net, check, x):
    net.op("Neg", [net.op("Add", [x, net.constant(1.0)], S)], S)
    net.parameter("unread", [4])
    finish(net, x)
    assert check(net, eliminate_dead_code) == 2
    assert list(net.graph.initializers) == ["unread"]
