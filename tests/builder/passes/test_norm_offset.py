import numpy as np

from enginesmith.builder.passes.derived import compute
from enginesmith.builder.passes.norm_offset import fold_norm_offsets

S = [1, "T", 8]


def test_offset_moves_into_the_weight(net, check):
    weight = net.parameter("norm.weight", [8])
    net.output(net.op("enginesmith::RMSNorm", [net.input("x", S), weight], S, epsilon=1e-6, offset=1.0))
    assert check(net, fold_norm_offsets) == 1
    node = net.only("RMSNorm")
    assert node.attributes.get_float("offset") == 0.0
    np.testing.assert_array_equal(compute(node.inputs[1], lambda _: np.arange(8.0)), np.arange(8.0) + 1)


def test_nothing_to_fold(net, check):
    x = net.input("x", S)
    plain = net.op("enginesmith::RMSNorm", [x, net.parameter("norm.weight", [8])], S, epsilon=1e-6)
    net.output(plain, net.op("enginesmith::RMSNorm", [x], S, epsilon=1e-6, offset=1.0))
    assert check(net, fold_norm_offsets) == 0
