import numpy as np
import pytest
from known import known

from enginesmith.builder.passes.linear import fuse_linears, read_linear


def test_matmul_with_transposed_weight_and_bias(net, check):
    x = net.input("x", [1, "T", 8])
    weight, bias = net.parameter("m.fc.weight", [6, 8]), net.parameter("m.fc.bias", [6])
    y = net.op("MatMul", [x, net.op("Transpose", [weight], [8, 6], perm=[1, 0])], [1, "T", 6])
    net.output(net.op("Add", [bias, y], [1, "T", 6]))
    assert check(net, fuse_linears) == 1
    (node,) = net.graph
    linear = read_linear(node)
    assert linear is not None
    assert (linear.weight, linear.bias, linear.transposed) == (weight, bias, False)
    assert (linear.n, linear.k, node.name) == (6, 8, "m.fc")


def test_conv1d_gemm(net, check):
    x = net.input("x", ["T", 8])
    weight, bias = net.parameter("h.c_attn.weight", [8, 12]), net.parameter("h.c_attn.bias", [12])
    net.output(net.op("Gemm", [x, weight, bias], ["T", 12], alpha=1.0, beta=1.0))
    assert check(net, fuse_linears) == 1
    linear = read_linear(net.only("Linear"))
    assert linear is not None
    assert linear.transposed
    assert linear.x is x
    assert (linear.n, linear.k) == (12, 8)


@pytest.mark.parametrize("attribute", [{"alpha": 2.0}, {"beta": 0.5}])
def test_scaled_gemm_is_left_alone(net, check, attribute):
    x = net.input("x", ["T", 8])
    net.output(net.op("Gemm", [x, net.parameter("w", [8, 4]), net.parameter("b", [4])], ["T", 4], **attribute))
    assert check(net, fuse_linears) == 0


def test_gemm_with_transposed_weight(net, check):
    x = net.input("x", ["T", 8])
    net.output(net.op("Gemm", [x, net.parameter("w", [4, 8])], ["T", 4], transB=1))
    assert check(net, fuse_linears) == 1
    assert net.only("Linear").attributes.get_int("transposed") == 0


def test_scale_between_product_and_bias_stays(net, check):
    x = net.input("x", [1, "T", 8])
    y = net.op("MatMul", [x, net.parameter("w", [8, 4])], [1, "T", 4])
    y = net.op("Mul", [y, net.constant(0.5)], [1, "T", 4])
    net.output(net.op("Add", [y, net.parameter("b", [4])], [1, "T", 4]))
    assert check(net, fuse_linears) == 1
    assert [node.op_type for node in net.graph] == ["Linear", "Mul", "Add"]


def test_bias_is_not_taken_when_the_product_is_read_elsewhere(net, check):
    x = net.input("x", [1, "T", 8])
    y = net.op("MatMul", [x, net.parameter("w", [8, 4])], [1, "T", 4])
    net.output(net.op("Add", [y, net.parameter("b", [4])], [1, "T", 4]), net.op("Relu", [y], [1, "T", 4]))
    assert check(net, fuse_linears) == 1
    assert net.count("Add") == 1


def test_products_without_a_weight_are_left_alone(net, check):
    positions = net.input("positions", [1, "T", 1])
    frequencies = net.constant(np.ones((1, 4)))
    x = net.input("x", [1, "T", 4])
    expert = net.parameter("experts", [1, 4, 4])
    net.output(
        net.op("MatMul", [positions, frequencies], [1, "T", 4]),  # a constant, not a weight
        net.op("MatMul", [x, expert], [1, "T", 4]),  # of rank 3
        net.op("MatMul", [x, net.op("Transpose", [x], [1, 4, "T"], perm=[0, 2, 1])], [1, "T", "T"]),
    )
    assert check(net, fuse_linears) == 0


def test_residual_is_not_mistaken_for_a_bias(net, check):
    x = net.input("x", [1, "T", 8])
    y = net.op("MatMul", [x, net.parameter("w", [8, 8])], [1, "T", 8])
    net.output(net.op("Add", [y, x], [1, "T", 8]))
    assert check(net, fuse_linears) == 1
    assert known(read_linear(net.only("Linear"))).bias is None
