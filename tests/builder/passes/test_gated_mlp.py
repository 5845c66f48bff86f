import numpy as np
import pytest

from enginesmith.builder.passes.derived import rows
from enginesmith.builder.passes.gated_mlp import fuse_gated_mlps

N, K = 6, 8
S = [1, "T", N]


@pytest.fixture
def x(net):
    return net.input("x", [1, "T", K])


def projection(net, x, name, bias=False):
    weight = net.parameter(f"mlp.{name}.weight", [N, K])
    return net.linear(x, weight, net.parameter(f"mlp.{name}.bias", [N]) if bias else None)


def silu(net, value, shape=S):
    return net.op("Mul", [value, net.op("Sigmoid", [value], shape)], shape)


@pytest.mark.parametrize("gate_bias", [False, True])
@pytest.mark.parametrize("up_bias", [False, True])
def test_separate_projections(net, check, x, gate_bias, up_bias):
    up = projection(net, x, "up_proj", up_bias)
    gate = silu(net, projection(net, x, "gate_proj", gate_bias))
    net.output(net.op("Mul", [up, gate], S))
    assert check(net, fuse_gated_mlps) == 1
    (node,) = net.graph
    assert (node.op_type, node.name) == ("GatedMLP", "mlp.gate_proj+up_proj")
    assert node.attributes.get_string("activation") == "silu"
    names = [value and value.name for value in node.inputs]
    assert names[:3] == ["x", "mlp.gate_proj.weight", "mlp.up_proj.weight"]
    assert (len(names) > 3 and names[3] == "mlp.gate_proj.bias") == gate_bias
    assert (len(names) > 4 and names[4] == "mlp.up_proj.bias") == up_bias


@pytest.mark.parametrize("gate_half", [0, 1])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("transposed", [0, 1])
def test_fused_projection(net, check, x, gate_half, bias, transposed):
    weight = net.parameter("mlp.gate_up_proj.weight", [K, 2 * N] if transposed else [2 * N, K])
    y = net.linear(x, weight, net.parameter("mlp.gate_up_proj.bias", [2 * N]) if bias else None, transposed=transposed)
    halves = net.multi("Split", [y, net.integers(N, N)], [S, S], axis=2)
    gate = net.op("Gelu", [halves[gate_half]], S, approximate="tanh")
    net.output(net.op("Mul", [gate, halves[1 - gate_half]], S))
    assert check(net, fuse_gated_mlps) == 1
    node = net.only("GatedMLP")
    assert node.attributes.get_string("activation") == "gelu_tanh"
    data = np.arange(2 * N * K, dtype=np.float32).reshape([K, 2 * N] if transposed else [2 * N, K])
    whole = data.T if transposed else data
    np.testing.assert_array_equal(
        rows(node.inputs[1], 1, 4, lambda _: data), whole[gate_half * N + 1 : gate_half * N + 4]
    )


def test_different_inputs(net, check, x):
    other = net.input("other", [1, "T", K])
    gate, up = projection(net, x, "gate_proj"), projection(net, other, "up_proj")
    net.output(net.op("Mul", [silu(net, gate), up], S))
    assert check(net, fuse_gated_mlps) == 0


def test_up_read_elsewhere(net, check, x):
    gate, up = projection(net, x, "gate_proj"), projection(net, x, "up_proj")
    net.output(net.op("Mul", [silu(net, gate), up], S), net.op("Neg", [up], S))
    assert check(net, fuse_gated_mlps) == 0


def test_activated_gate_read_elsewhere(net, check, x):
    gate, up = silu(net, projection(net, x, "gate_proj")), projection(net, x, "up_proj")
    net.output(net.op("Mul", [gate, up], S), net.op("Neg", [gate], S))
    assert check(net, fuse_gated_mlps) == 0


def test_no_activation(net, check, x):
    net.output(net.op("Mul", [projection(net, x, "gate_proj"), projection(net, x, "up_proj")], S))
    assert check(net, fuse_gated_mlps) == 0


def test_gate_broadcast_over_features(net, check, x):
    gate = net.linear(x, net.parameter("gate.weight", [1, K]))
    gate = net.op("Sigmoid", [gate], [1, "T", 1])
    net.output(net.op("Mul", [gate, projection(net, x, "up_proj")], S))
    assert check(net, fuse_gated_mlps) == 0


def test_split_on_another_axis(net, check):
    x = net.input("x", [2, "T", K])
    y = net.linear(x, net.parameter("w", [N, K]))
    a, b = net.multi("Split", [y, net.integers(1, 1)], [S, S], axis=0)
    net.output(net.op("Mul", [silu(net, a), b], S))
    assert check(net, fuse_gated_mlps) == 0


def test_unequal_halves(net, check, x):
    y = net.linear(x, net.parameter("w", [N, K]))
    a, b = net.multi("Split", [y, net.integers(N - 1, 1)], [[1, "T", N - 1], [1, "T", 1]], axis=-1)
    net.output(net.op("Mul", [silu(net, a, [1, "T", N - 1]), b], [1, "T", N - 1]))
    assert check(net, fuse_gated_mlps) == 0


def test_fused_projection_read_elsewhere(net, check, x):
    y = net.linear(x, net.parameter("w", [2 * N, K]))
    a, b = net.multi("Split", [y, net.integers(N, N)], [S, S], axis=-1)
    net.output(net.op("Mul", [silu(net, a), b], S), net.op("Neg", [y], [1, "T", 2 * N]))
    assert check(net, fuse_gated_mlps) == 0
