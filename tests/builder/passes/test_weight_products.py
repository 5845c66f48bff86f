import pytest

from enginesmith.builder.passes.merge_views import merge_views
from enginesmith.builder.passes.weight_products import products_as_linears


def test_a_weight_on_the_left_of_transposed_activations(net, check):
    x = net.op("Transpose", [net.input("x", [1, "T", 8])], [1, 8, "T"], perm=[0, 2, 1])
    y = net.op("MatMul", [net.parameter("w", [6, 8]), x], [1, 6, "T"])
    net.output(net.op("Transpose", [y], [1, "T", 6], perm=[0, 2, 1]))
    assert check(net, products_as_linears) == 1
    check(net, merge_views)
    assert [node.op_type for node in net.graph if node.op_type != "Reshape"][-1] == "Linear"
    assert net.count("MatMul") == 0


@pytest.mark.parametrize("shape", [[3, 8, 6], [3, 1, 8, 6]], ids=str)
def test_heads_with_a_matrix_each(net, check, shape):
    leading = shape[:-2]
    y = net.op("MatMul", [net.input("x", [*leading, "T", 8]), net.parameter("w", shape)], [*leading, "T", 6])
    net.output(net.op("Neg", [y], [*leading, "T", 6]))
    assert check(net, products_as_linears) == 1
    assert (net.count("MatMul"), net.count("Linear")) == (0, 3)


def test_heads_with_a_matrix_each_on_the_left(net, check):
    y = net.op("MatMul", [net.parameter("w", [3, 1, 6, 8]), net.input("x", [3, 1, 8, "T"])], [3, 1, 6, "T"])
    net.output(net.op("Neg", [y], [3, 1, 6, "T"]))
    assert check(net, products_as_linears) == 1
    assert (net.count("MatMul"), net.count("Linear")) == (0, 3)


def test_products_of_activations_and_of_weights_stay(net, check):
    x, w = net.input("x", [1, "T", 8]), net.parameter("w", [8, 8])
    y = net.op("MatMul", [x, net.input("y", [1, 8, 8])], [1, "T", 8])
    net.output(y, net.op("MatMul", [w, w], [8, 8]))
    assert check(net, products_as_linears) == 0


def test_a_matrix_for_each_of_several_heads_of_one_input_stays(net, check):
    y = net.op("MatMul", [net.input("x", [1, "T", 8]), net.parameter("w", [3, 8, 6])], [3, "T", 6])
    net.output(net.op("Neg", [y], [3, "T", 6]))
    assert check(net, products_as_linears) == 0
