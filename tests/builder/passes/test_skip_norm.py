import pytest

from enginesmith.builder.passes.skip_norm import fuse_skip_norms

S = [1, "T", 8]


@pytest.fixture
def x(net):
    return net.input("x", S)


@pytest.fixture
def branch(net, x):
    return net.op("Tanh", [x], S)


def rms_norm(net, x, **attrs):
    return net.op("enginesmith::RMSNorm", [x, net.parameter("norm.weight", [8])], x.shape, epsilon=1e-6, **attrs)


def test_rms_norm_of_a_shared_sum(net, check, x, branch):
    total = net.op("Add", [x, branch], S)
    late = net.op("Neg", [total], S)
    net.output(rms_norm(net, total), late)
    assert check(net, fuse_skip_norms) == 1
    node = net.only("SkipRMSNorm")
    assert [value.name for value in node.inputs] == ["x", branch.name, "norm.weight"]
    assert node.attributes.get_float("epsilon") == pytest.approx(1e-6)
    assert net.count("Add") == net.count("RMSNorm") == 0


@pytest.mark.parametrize("bias", [False, True])
def test_layer_norm(net, check, x, branch, bias):
    total = net.op("Add", [x, branch], S)
    parameters = [net.parameter("w", [8])] + ([net.parameter("b", [8])] if bias else [])
    y = net.op("LayerNormalization", [total, *parameters], S, axis=-1, epsilon=1e-5)
    net.output(net.op("Add", [y, total], S))
    assert check(net, fuse_skip_norms) == 1
    assert len(net.only("SkipLayerNorm").inputs) == 3 + bias


def test_two_norms_share_the_sum(net, check, x, branch):
    total = net.op("Add", [x, branch], S)
    second = net.op("enginesmith::RMSNorm", [total], S, epsilon=1e-6)
    net.output(rms_norm(net, total), second)
    assert check(net, fuse_skip_norms) == 1
    assert net.count("RMSNorm") == 1


def test_sum_that_only_the_norm_reads(net, check, x, branch):
    net.output(rms_norm(net, net.op("Add", [x, branch], S)))
    assert check(net, fuse_skip_norms) == 0


def test_broadcast_sum(net, check, x):
    total = net.op("Add", [x, net.input("row", [8])], S)
    net.output(rms_norm(net, total), net.op("Neg", [total], S))
    assert check(net, fuse_skip_norms) == 0


def test_layer_norm_over_two_axes(net, check, x):
    y = net.input("y", [1, 4, 8])
    total = net.op("Add", [y, net.op("Tanh", [y], [1, 4, 8])], [1, 4, 8])
    norm = net.op("LayerNormalization", [total, net.parameter("w", [4, 8])], [1, 4, 8], axis=1)
    net.output(norm, net.op("Neg", [total], [1, 4, 8]))
    assert check(net, fuse_skip_norms) == 0


def test_offset_must_be_folded_first(net, check, x, branch):
    total = net.op("Add", [x, branch], S)
    net.output(rms_norm(net, total, offset=1.0), net.op("Neg", [total], S))
    assert check(net, fuse_skip_norms) == 0
