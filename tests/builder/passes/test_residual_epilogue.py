import pytest
from known import known

from enginesmith.builder.passes.linear import read_linear
from enginesmith.builder.passes.residual_epilogue import fuse_residuals

S = [1, "T", 8]


@pytest.fixture
def x(net):
    return net.input("x", S)


def linear(net, x, name="o_proj", **attrs):
    return net.linear(x, net.parameter(f"{name}.weight", [8, 8]), **attrs)


@pytest.mark.parametrize("flip", [False, True])
def test_residual_on_either_side(net, check, x, flip):
    operands = [x, linear(net, net.op("Neg", [x], S))]
    net.output(net.op("Add", operands[::-1] if flip else operands, S))
    assert check(net, fuse_residuals) == 1
    node = net.only("Linear")
    assert known(read_linear(node)).residual is x
    assert node.inputs[2] is None
    assert net.count("Add") == 0


def test_residual_computed_after_the_linear(net, check, x):
    y = linear(net, x)
    residual = net.op("Neg", [x], S)
    net.output(net.op("Add", [y, residual], S))
    assert check(net, fuse_residuals) == 1


def test_broadcast_residual_is_left_alone(net, check, x):
    row = net.input("row", [1, 1, 8])
    net.output(net.op("Add", [linear(net, x), row], S))
    assert check(net, fuse_residuals) == 0


def test_linear_read_elsewhere(net, check, x):
    y = linear(net, x)
    net.output(net.op("Add", [y, x], S), net.op("Neg", [y], S))
    assert check(net, fuse_residuals) == 0


def test_activated_linear_is_left_alone(net, check, x):
    net.output(net.op("Add", [linear(net, x, activation="relu"), x], S))
    assert check(net, fuse_residuals) == 0


def test_doubled_linear_is_left_alone(net, check, x):
    y = linear(net, x)
    net.output(net.op("Add", [y, y], S))
    assert check(net, fuse_residuals) == 0


def test_later_linear_takes_the_earlier(net, check, x):
    attention, mlp = linear(net, x, "attention"), linear(net, net.op("Neg", [x], S), "mlp")
    net.output(net.op("Add", [attention, mlp], S))
    assert check(net, fuse_residuals) == 1
    last = known(read_linear(net.graph.outputs[0].producer()))
    assert last.weight.name == "mlp.weight"
    assert known(read_linear(known(last.residual).producer())).weight.name == "attention.weight"


@pytest.mark.parametrize("residual_last", [True, False])
def test_parallel_attention_and_mlp(net, check, x, residual_last):
    attention, mlp = linear(net, x, "attention"), linear(net, net.op("Neg", [x], S), "mlp")
    if residual_last:
        y = net.op("Add", [net.op("Add", [attention, mlp], S), x], S)
    else:
        y = net.op("Add", [net.op("Add", [x, attention], S), mlp], S)
    net.output(y)
    assert check(net, fuse_residuals) == 2
    assert net.count("Add") == 0
    mlp = known(read_linear(net.graph.outputs[0].producer()))
    attention = known(read_linear(known(mlp.residual).producer()))
    assert attention.residual is x


def test_inner_sum_read_elsewhere_stops_the_chain(net, check, x):
    attention, mlp = linear(net, x, "attention"), linear(net, net.op("Neg", [x], S), "mlp")
    inner = net.op("Add", [attention, mlp], S)
    net.output(net.op("Add", [inner, x], S), net.op("Neg", [inner], S))
    assert check(net, fuse_residuals) == 1
    assert net.count("Add") == 1
