"""Channels carried back through small networks: what absorbs a scale, what prevents it; the value is divided."""

import numpy as np
import pytest
from known import known
from small_networks import NetworkBuilder, name_of, random_feeds, run_network

from enginesmith.builder.passes.graph import is_parameter
from enginesmith.builder.quantize.folds import Fold, find_fold

K, TABLE = 12, 32
SHAPE = [1, "T", K]


@pytest.fixture
def net():
    return NetworkBuilder()


@pytest.fixture
def x(net):
    return net.input("x", SHAPE)


def project(net, x, name="w", n=K, **attributes):
    shape = [K, n] if attributes.get("transposed") else [n, K]
    return net.linear(x, net.parameter(f"{name}.weight", shape), net.parameter(f"{name}.bias", [n]), **attributes)


def fold_of(net, value) -> Fold | None:
    """The fold of `value`, which must divide it: [1, T, K], or any shape that ends with K."""
    net.output(value)
    k = known(value.shape)[-1]
    fold = find_fold(value, k)
    if fold is not None:
        feeds = random_feeds(net.graph)
        scale = np.exp2(np.random.default_rng(1).uniform(-2, 2, k)).astype(np.float32)
        scale = scale if fold.tied is None else scale[fold.tied]
        parameters = {name_of(v): feeds[name_of(v)] for v in net.graph.initializers.values() if is_parameter(v)}
        expected = run_network(net.graph, feeds)[name_of(value)] / scale
        fold.apply(parameters, scale)
        np.testing.assert_allclose(run_network(net.graph, feeds | parameters)[name_of(value)], expected, 1e-4, 1e-5)
    return fold


@pytest.mark.parametrize("transposed", [0, 1])
def test_rows_of_a_linear(net, x, transposed):
    fold = known(fold_of(net, project(net, x, transposed=transposed)))
    assert fold.parameters == ("w.weight", "w.bias")
    assert fold.tied is None


@pytest.mark.parametrize("op", ["Relu", "LeakyRelu", "Neg", "Abs"])
def test_homogeneous_functions_are_passed(net, x, op):
    assert fold_of(net, net.op(op, [project(net, x)], SHAPE)) is not None


@pytest.mark.parametrize("op", ["Sigmoid", "Tanh", "Gelu", "Exp"])
def test_other_functions_are_not(net, x, op):
    assert fold_of(net, net.op(op, [project(net, x)], SHAPE)) is None


def test_a_square_is_not(net, x):
    activated = net.op("Relu", [project(net, x)], SHAPE)
    assert fold_of(net, net.op("Mul", [activated, activated], SHAPE)) is None


@pytest.mark.parametrize("gate_first", [False, True])
def test_a_product_takes_the_operand_that_can(net, x, gate_first):
    gate, up = net.op("Sigmoid", [project(net, x, "gate")], SHAPE), project(net, x, "up")
    fold = known(fold_of(net, net.op("Mul", [gate, up] if gate_first else [up, gate], SHAPE)))
    assert fold.parameters == ("up.weight", "up.bias")


def test_factors_and_divisors_are_passed(net, x):
    value = net.op("Mul", [project(net, x), net.constant(3.0)], SHAPE)
    fold = known(fold_of(net, net.op("Div", [value, net.op("Exp", [x], SHAPE)], SHAPE)))
    assert fold.parameters == ("w.weight", "w.bias")


def test_a_parameter_as_factor(net, x):
    assert known(fold_of(net, net.op("Mul", [x, net.parameter("gain", [K])], SHAPE))).parameters == ("gain",)


def test_a_parameter_plus_a_number(net, x):
    gain = net.op("Add", [net.op("Add", [net.parameter("gain", [K]), net.constant(1.0)], [K]), net.constant(2.0)], [K])
    fold = known(fold_of(net, net.op("enginesmith::RMSNorm", [x, gain], SHAPE, epsilon=1e-5)))
    assert [divisor.offset for divisor in fold.divisors] == [3.0]


@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_an_rms_norm(net, x, offset):
    weight = net.parameter("norm.weight", [K])
    fold = known(fold_of(net, net.op("enginesmith::RMSNorm", [x, weight], SHAPE, epsilon=1e-5, offset=offset)))
    assert fold.parameters == ("norm.weight",)


def test_a_layer_norm(net, x):
    inputs = [x, net.parameter("norm.weight", [K]), net.parameter("norm.bias", [K])]
    fold = known(fold_of(net, net.op("LayerNormalization", inputs, SHAPE, axis=-1)))
    assert fold.parameters == ("norm.weight", "norm.bias")


def test_norms_without_weights_absorb_nothing(net, x):
    assert fold_of(net, net.op("enginesmith::RMSNorm", [x], SHAPE, epsilon=1e-5)) is None


def test_a_layer_norm_of_constants_absorbs_nothing(net, x):
    assert fold_of(net, net.op("LayerNormalization", [x, net.constant(np.ones(K))], SHAPE, axis=-1)) is None


def test_a_sum_needs_both(net, x):
    value = net.op("Add", [project(net, x, "a"), project(net, x, "b")], SHAPE)
    assert known(fold_of(net, value)).parameters == ("a.weight", "a.bias", "b.weight", "b.bias")


@pytest.mark.parametrize("other", ["residual", "number"])
def test_a_sum_with_something_else_absorbs_nothing(net, x, other):
    assert (
        fold_of(net, net.op("Add", [project(net, x), x if other == "residual" else net.constant(1.0)], SHAPE)) is None
    )


def test_a_value_with_another_reader_is_left_alone(net, x):
    value = project(net, x)
    net.output(net.op("Exp", [value], SHAPE))
    assert fold_of(net, net.op("Relu", [value], SHAPE)) is None


def test_a_weight_with_another_reader_is_left_alone(net, x):
    weight = net.parameter("shared", [K, K])
    net.output(net.linear(x, weight))
    assert fold_of(net, net.linear(x, weight)) is None


def test_a_bias_with_another_reader_is_left_alone(net, x):
    bias = net.parameter("bias", [K])
    net.output(net.op("Add", [x, bias], SHAPE))
    assert fold_of(net, net.linear(x, net.parameter("weight", [K, K]), bias)) is None


def test_a_weight_that_is_computed_absorbs_nothing(net, x):
    weight = net.op("Tanh", [net.parameter("weight", [K, K])], [K, K])
    assert fold_of(net, net.linear(x, weight)) is None


def test_a_norm_of_heads_ties_channels(net, x):
    """Three heads of four channels share a weight of four."""
    heads = net.op("Reshape", [x, net.integers(1, -1, 3, 4)], [1, "T", 3, 4])
    normed = net.op("enginesmith::RMSNorm", [heads, net.parameter("norm", [4])], [1, "T", 3, 4], epsilon=1e-5)
    fold = known(fold_of(net, net.op("Reshape", [normed, net.integers(1, -1, K)], SHAPE)))
    np.testing.assert_array_equal(fold.tied, np.tile(np.arange(4), 3))


def attention(net, v, heads, d):
    """Of `heads` query heads, with the values v [1, Hk, T, D]."""
    shape = known(v.shape)
    q, k = net.input("q", [1, heads, "T", 8]), net.input("k", [1, shape[1], "T", 8])
    return net.op("enginesmith::PagedAttention", [q, k, v], [1, "T", heads, d], scale=0.3)


def test_grouped_values_that_lie_between_queries_and_keys(net, x):
    """Rows of a fused weight: for each of two heads 3 queries', 2 keys', 4 values'; three query heads share a value."""
    fused = net.op("Reshape", [project(net, x, n=18), net.integers(1, -1, 2, 9)], [1, "T", 2, 9])
    _, _, v = net.multi("Split", [fused, net.integers(3, 2, 4)], [[1, "T", 2, size] for size in (3, 2, 4)], axis=3)
    v = net.op("Transpose", [v], [1, 2, "T", 4], perm=[0, 2, 1, 3])
    fold = known(fold_of(net, net.op("Reshape", [attention(net, v, 6, 4), net.integers(1, -1, 24)], [1, "T", 24])))
    np.testing.assert_array_equal(known(fold.tied).reshape(2, 3, 4), np.arange(24).reshape(2, 3, 4)[:, :1].repeat(3, 1))
    rows = fold.divisors[0].channels[:, 0].reshape(2, 9)
    np.testing.assert_array_equal(rows, [[-1] * 5 + [0, 1, 2, 3], [-1] * 5 + [12, 13, 14, 15]])


def test_a_slice_is_a_part_of_a_weight(net, x):
    window = [net.integers(2), net.integers(K), net.integers(2), net.integers(2)]
    fold = known(fold_of(net, net.op("Slice", [project(net, x), *window], [1, "T", 5])))
    np.testing.assert_array_equal(fold.divisors[0].channels[:, 0], [-1, -1, 0, -1, 1, -1, 2, -1, 3, -1, 4, -1])


def test_ties_that_meet_are_joined(net, x):
    """A norm ties the halves of every head, attention the heads."""
    v = net.op("Reshape", [project(net, x, n=8), net.integers(1, -1, 1, 8)], [1, "T", 1, 8])
    halves = net.op("Reshape", [v, net.integers(1, -1, 1, 2, 4)], [1, "T", 1, 2, 4])
    scaled = net.op("enginesmith::RMSNorm", [halves, net.parameter("gain", [4])], [1, "T", 1, 2, 4], epsilon=1e-5)
    v = net.op("Reshape", [scaled, net.integers(1, 1, -1, 8)], [1, 1, "T", 8])
    fold = known(fold_of(net, net.op("Reshape", [attention(net, v, 2, 8), net.integers(1, -1, 16)], [1, "T", 16])))
    np.testing.assert_array_equal(fold.tied, np.tile(np.arange(4), 4))


def test_a_reshape_that_mixes_tokens_into_channels_is_not_passed(net, x):
    mixed = net.op("Reshape", [project(net, x), net.integers(1, 4, -1, 3)], [1, 4, "T", 3])
    heads = net.op("Transpose", [mixed], [1, "T", 4, 3], perm=[0, 2, 1, 3])
    assert fold_of(net, net.op("Reshape", [heads, net.integers(1, -1, K)], SHAPE)) is None


def test_a_selection_of_tokens_is_passed(net, x):
    rows = net.input("rows", ["R"], 7)
    assert fold_of(net, net.op("Gather", [project(net, x), rows], [1, "R", K], axis=1)) is not None


def test_an_embedding_absorbs_nothing(net):
    ids = net.input("ids", [1, "T"], 7)
    assert fold_of(net, net.op("Gather", [net.parameter("table", [TABLE, K]), ids], SHAPE, axis=0)) is None
