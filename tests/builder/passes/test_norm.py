import pytest

from enginesmith.builder.passes.norm import fuse_norms

S, ONE = [1, "T", 2, 8], [1, "T", 2, 1]


@pytest.fixture
def x(net):
    return net.input("x", S)


def mean(net, x):
    return net.op("ReduceMean", [x, net.integers(-1)], ONE, keepdims=1)


def mean_by_sum(net, x):
    return net.op("Div", [net.op("ReduceSum", [x, net.integers(3)], ONE, keepdims=1), net.constant(8.0)], ONE)


def over_root(net, x, mean_square, epsilon=1e-5, reciprocal=True):
    root = net.op("Sqrt", [net.op("Add", [mean_square, net.constant(epsilon)], ONE)], ONE)
    if reciprocal:
        return net.op("Mul", [net.op("Reciprocal", [root], ONE), x], S)
    return net.op("Div", [x, root], S)


def rms(net, x, mean=mean, **options):
    return over_root(net, x, mean(net, net.op("Pow", [x, net.constant(2.0)], S)), **options)


def layer(net, x, mean=mean, **options):
    centred = net.op("Sub", [x, mean(net, x)], S)
    return over_root(net, centred, mean(net, net.op("Mul", [centred, centred], S)), **options)


@pytest.mark.parametrize("reciprocal", [True, False])
@pytest.mark.parametrize("mean", [mean, mean_by_sum])
@pytest.mark.parametrize(("norm", "op"), [(rms, "RMSNorm"), (layer, "LayerNormalization")])
def test_spellings(net, check, x, norm, op, mean, reciprocal):
    net.output(net.op("Neg", [norm(net, x, mean, reciprocal=reciprocal)], S))
    assert check(net, fuse_norms) == 1
    assert [node.op_type for node in net.graph] == [op, "Neg"]
    assert net.only(op).attributes.get_float("epsilon") == pytest.approx(1e-5)


@pytest.mark.parametrize(("norm", "op"), [(rms, "RMSNorm"), (layer, "LayerNormalization")])
def test_weight_of_the_last_axis_is_taken(net, check, x, norm, op):
    weight = net.parameter("q_norm.weight", [8])
    net.output(net.op("Mul", [weight, norm(net, x)], S))
    assert check(net, fuse_norms) == 1
    (node,) = net.graph
    assert (node.op_type, node.inputs[1], node.name) == (op, weight, "q_norm")


def test_weight_of_every_head_stays(net, check, x):
    net.output(net.op("Mul", [net.parameter("q_norm.weight", [2, 8]), layer(net, x)], S))
    assert check(net, fuse_norms) == 1
    assert [node.op_type for node in net.graph] == ["LayerNormalization", "Mul"]


def test_mean_read_elsewhere(net, check, x):
    average = mean(net, x)
    centred = net.op("Sub", [x, average], S)
    y = over_root(net, centred, mean(net, net.op("Mul", [centred, centred], S)))
    net.output(y, net.op("Neg", [average], ONE))
    assert check(net, fuse_norms) == 1
    assert net.only("RMSNorm").inputs[0] is centred  # all that can be had


def test_mean_square_read_elsewhere(net, check, x):
    mean_square = mean(net, net.op("Mul", [x, x], S))
    net.output(over_root(net, x, mean_square), net.op("Neg", [mean_square], ONE))
    assert check(net, fuse_norms) == 0


def test_input_read_elsewhere(net, check, x):
    net.output(net.op("Add", [rms(net, x), x], S), net.op("Tanh", [x], S))
    assert check(net, fuse_norms) == 1


def test_l2_norm_is_not_rms_norm(net, check, x):
    total = net.op("ReduceSum", [net.op("Mul", [x, x], S), net.integers(3)], ONE, keepdims=1)
    net.output(over_root(net, x, total))
    assert check(net, fuse_norms) == 0


def test_norm_over_another_axis(net, check, x):
    shape = [1, "T", 1, 8]
    mean_square = net.op("ReduceMean", [net.op("Mul", [x, x], S), net.integers(2)], shape, keepdims=1)
    root = net.op("Sqrt", [net.op("Add", [mean_square, net.constant(1e-5)], shape)], shape)
    net.output(net.op("Div", [x, root], S))
    assert check(net, fuse_norms) == 0
