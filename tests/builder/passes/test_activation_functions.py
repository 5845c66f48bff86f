import math

import numpy as np
import pytest
from known import known

from enginesmith.builder.passes.activation_epilogue import fuse_activations
from enginesmith.builder.passes.activation_functions import recognise

S = [1, "T", 8]


def silu(net, x):
    return net.op("Mul", [net.op("Sigmoid", [x], S), x], S)


def silu_by_division(net, x):
    denominator = net.op("Add", [net.op("Exp", [net.op("Neg", [x], S)], S), net.constant(1.0)], S)
    return net.op("Div", [x, denominator], S)


def quick_gelu(net, x):
    return net.op("Mul", [x, net.op("Sigmoid", [net.op("Mul", [x, net.constant(1.702)], S)], S)], S)


def gelu(net, x):
    return net.op("Gelu", [x], S, approximate="none")


def gelu_by_erf(net, x):
    inner = net.op("Erf", [net.op("Div", [x, net.constant(math.sqrt(2))], S)], S)
    return net.op("Mul", [net.op("Mul", [x, net.constant(0.5)], S), net.op("Add", [inner, net.constant(1.0)], S)], S)


def gelu_tanh(net, x):
    return net.op("Gelu", [x], S, approximate="tanh")


def gelu_new(net, x):
    cube = net.op("Mul", [net.op("Pow", [x, net.constant(3.0)], S), net.constant(0.044715)], S)
    inner = net.op("Mul", [net.op("Add", [x, cube], S), net.constant(math.sqrt(2 / math.pi))], S)
    outer = net.op("Add", [net.op("Tanh", [inner], S), net.constant(1.0)], S)
    return net.op("Mul", [net.op("Mul", [x, net.constant(0.5)], S), outer], S)


def relu(net, x):
    return net.op("Relu", [x], S)


def relu2_by_pow(net, x):
    return net.op("Pow", [relu(net, x), net.constant(2.0)], S)


def relu2_by_mul(net, x):
    y = relu(net, x)
    return net.op("Mul", [y, y], S)


def tanh(net, x):
    return net.op("Tanh", [x], S)


def sigmoid(net, x):
    return net.op("Sigmoid", [x], S)


SPELLINGS = {
    silu: "silu",
    silu_by_division: "silu",
    quick_gelu: "quick_gelu",
    gelu: "gelu",
    gelu_by_erf: "gelu",
    gelu_tanh: "gelu_tanh",
    gelu_new: "gelu_tanh",
    relu: "relu",
    relu2_by_pow: "relu2",
    relu2_by_mul: "relu2",
    tanh: "tanh",
    sigmoid: "sigmoid",
}


@pytest.mark.parametrize(("spelling", "name"), SPELLINGS.items(), ids=lambda v: getattr(v, "__name__", v))
def test_every_spelling_becomes_an_epilogue(net, check, spelling, name):
    x = net.input("x", S)
    y = net.linear(x, net.parameter("m.fc1.weight", [8, 8]), net.parameter("m.fc1.bias", [8]))
    y = spelling(net, y)
    net.output(net.op("Mul", [y, x], S))
    assert check(net, fuse_activations) == 1
    assert [node.op_type for node in net.graph] == ["Linear", "Mul"]
    assert net.only("Linear").attributes.get_string("activation") == name


def test_a_scale_after_the_activation_stays(net, check):
    y = silu(net, net.linear(net.input("x", S), net.parameter("w", [8, 8])))
    net.output(net.op("Mul", [y, net.constant(2.0)], S))
    assert check(net, fuse_activations) == 1
    assert [node.op_type for node in net.graph] == ["Linear", "Mul"]


def test_not_fused_when_the_linear_is_read_elsewhere(net, check):
    y = net.linear(net.input("x", S), net.parameter("w", [8, 8]))
    net.output(relu(net, y), net.op("Neg", [y], S))
    assert check(net, fuse_activations) == 0


def test_not_fused_when_an_inner_value_is_read_elsewhere(net, check):
    y = net.linear(net.input("x", S), net.parameter("w", [8, 8]))
    gate = net.op("Sigmoid", [y], S)
    net.output(net.op("Mul", [gate, y], S), net.op("Neg", [gate], S))
    assert check(net, fuse_activations) == 0


def test_not_fused_when_the_linear_is_an_output(net, check):
    y = net.linear(net.input("x", S), net.parameter("w", [8, 8]))
    net.output(y, relu(net, y))
    assert check(net, fuse_activations) == 0


@pytest.mark.parametrize("scale", [1.6, 1.71])
def test_other_functions_are_not_recognised(net, scale):
    x = net.input("x", S)
    net.output(net.op("Mul", [x, net.op("Sigmoid", [net.op("Mul", [x, net.constant(scale)], S)], S)], S))
    assert recognise(x) is None


def test_a_bounded_gelu_is_not_gelu(net):
    x = net.input("x", S)
    net.output(net.op("Clip", [gelu(net, x), net.constant(-10.0), net.constant(10.0)], S))
    _, output = known(recognise(x))
    assert known(output.producer()).op_type == "Gelu"  # the Clip is left outside


def test_a_tensor_operand_is_not_a_scalar(net):
    x = net.input("x", S)
    net.output(net.op("Mul", [x, net.op("Sigmoid", [net.op("Mul", [x, net.constant(np.ones(8))], S)], S)], S))
    assert recognise(x) is None
