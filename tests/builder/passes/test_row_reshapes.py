import numpy as np

from enginesmith.builder.passes.merge_views import merge_views
from enginesmith.builder.passes.row_reshapes import move_row_reshapes

S = [1, "T", 8]


def flat(net, x):
    return net.op("Reshape", [x, net.integers(-1, 8)], ["T", 8])


def batched(net, x):
    return net.op("Reshape", [x, net.integers(1, -1, x.shape[-1])], [1, "T", x.shape[-1]])


def test_a_block_over_flat_rows(net, check):
    x = net.input("x", S)
    y = flat(net, x)
    n = net.op("LayerNormalization", [y, net.parameter("norm", [8])], ["T", 8], axis=1)
    n = net.linear(n, net.parameter("fc1", [6, 8]), net.parameter("b1", [6]), activation="relu")
    n = net.linear(n, net.parameter("fc2", [6, 8]), transposed=1)
    n = net.op("Add", [n, y], ["T", 8])
    net.output(net.op("Mul", [batched(net, n), net.constant(2.0)], S))
    assert check(net, lambda graph: move_row_reshapes(graph) and merge_views(graph)) > 0
    assert net.count("Reshape") == 0
    assert net.only("LayerNormalization").outputs[0].shape == [1, "T", 8]


def test_merged_heads(net, check):
    heads = net.input("heads", [1, "T", 2, 4])
    merged = net.op("Reshape", [heads, net.integers(-1, 8)], ["T", 8])
    y = batched(net, net.linear(merged, net.parameter("w", [8, 4]), transposed=1))
    net.output(net.op("Neg", [y], y.shape))
    assert check(net, lambda graph: move_row_reshapes(graph) + merge_views(graph)) == 2
    assert [node.op_type for node in net.graph] == ["Reshape", "Linear", "Neg"]
    assert list(net.only("Linear").inputs[0].shape) == [1, "T", 8]


def test_heads_merged_before_a_linear_stay(net, check):
    heads = net.input("heads", [1, "T", 2, 4])
    merged = net.op("Reshape", [heads, net.integers(1, -1, 8)], S)
    net.output(net.linear(merged, net.parameter("w", [4, 8])))
    assert check(net, move_row_reshapes) == 0


def test_operands_of_different_shape(net, check):
    x, y = net.input("x", S), net.input("y", ["T", 8])
    net.output(net.op("Add", [flat(net, x), y], ["T", 8]))
    assert check(net, move_row_reshapes) == 0


def test_norm_over_all_but_rows_is_not_row_wise(net, check):
    x = net.input("x", [1, 3, 8])
    y = net.op("Reshape", [x, net.integers(3, 8)], [3, 8])
    net.output(net.op("LayerNormalization", [y, net.parameter("w", [3, 8])], [3, 8], axis=0))
    assert check(net, move_row_reshapes) == 0


def test_operand_of_higher_rank_than_the_source(net, check):
    x = net.input("x", ["T", 8])
    y = net.op("Mul", [batched(net, x), net.constant(np.ones((1, 1, 8)))], S)
    net.output(net.op("Neg", [y], S))
    assert check(net, move_row_reshapes) == 0
