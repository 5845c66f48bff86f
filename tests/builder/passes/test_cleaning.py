"""Views, splits and common subexpressions."""

import pytest
from known import known

from enginesmith.builder.passes.common_subexpressions import eliminate_common_subexpressions
from enginesmith.builder.passes.graph import constant
from enginesmith.builder.passes.merge_views import merge_views
from enginesmith.builder.passes.splits import make_splits

S = [1, "T", 8]


@pytest.fixture
def x(net):
    return net.input("x", S)


def finish(net, *values):
    net.output(*(net.op("Neg", [value], value.shape, value.dtype) for value in values))


def test_reshapes_merge(net, check, x):
    y = net.op("Reshape", [x, net.integers(1, 1, -1, 8)], [1, *S])
    y = net.op("Reshape", [y, net.integers(-1, 8)], ["T", 8])
    y = net.op("Reshape", [y, net.integers(1, -1, 4, 2)], [1, "T", 4, 2])
    finish(net, y)
    check(net, merge_views)
    node = net.only("Reshape")
    assert node.inputs[0] is x
    assert known(constant(node.inputs[1])).tolist() == [1, -1, 4, 2]


def test_reshapes_that_return_cancel(net, check, x):
    y = net.op("Reshape", [x, net.integers(-1, 8)], ["T", 8])
    finish(net, net.op("Reshape", [y, net.integers(1, -1, 8)], S))
    check(net, merge_views)
    assert [node.op_type for node in net.graph] == ["Neg"]


def test_transposes_merge(net, check, x):
    y = net.op("Transpose", [x], ["T", 8, 1], perm=[1, 2, 0])
    finish(net, net.op("Transpose", [y], [8, "T", 1], perm=[1, 0, 2]), net.op("Transpose", [y], S, perm=[2, 0, 1]))
    check(net, merge_views)
    assert net.only("Transpose").attributes.get_ints("perm") == (2, 1, 0)


def test_two_symbolic_dimensions_are_left_alone(net, x):
    outer = net.op("MatMul", [x, net.op("Transpose", [x], [1, 8, "T"], perm=[0, 2, 1])], [1, "T", "T"])
    shape = net.input("shape", [4], 7)
    flat = net.op("Reshape", [outer, net.integers(-1)], ["T*T"])
    finish(net, net.op("Reshape", [flat, shape], [1, 1, "T", "T"]))
    assert merge_views(net.graph) == 0


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
