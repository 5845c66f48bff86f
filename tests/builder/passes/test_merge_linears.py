import numpy as np
import pytest
from known import known

from enginesmith.builder.passes.derived import compute, parameters_of
from enginesmith.builder.passes.linear import read_linear
from enginesmith.builder.passes.merge_linears import merge_linears

K = 8
SIZES = {"q_proj": 8, "k_proj": 4, "v_proj": 4}


@pytest.fixture
def x(net):
    return net.input("x", [1, "T", K])


def projections(net, x, biases=(), transposed=0):
    for name, n in SIZES.items():
        weight = net.parameter(f"attn.{name}.weight", [K, n] if transposed else [n, K])
        bias = net.parameter(f"attn.{name}.bias", [n]) if name in biases else None
        yield net.linear(x, weight, bias, transposed=transposed)


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("biases", [(), ("q_proj", "v_proj"), tuple(SIZES)])
def test_three_projections(net, check, x, biases, transposed):
    net.output(*(net.op("Neg", [y], y.shape) for y in projections(net, x, biases, transposed)))
    assert check(net, merge_linears) == 3
    linear = known(read_linear(net.only("Linear")))
    assert linear.node.name == "attn.q_proj+k_proj+v_proj"
    assert linear.transposed == bool(transposed)
    assert (linear.n, linear.k) == (16, K)
    assert parameters_of(linear.weight) == [f"attn.{name}.weight" for name in SIZES]
    assert (linear.bias is not None) == bool(biases)
    if biases == ("q_proj", "v_proj"):
        bias = compute(known(linear.bias), lambda name: np.ones(8 if "q_proj" in name else 4))
        np.testing.assert_array_equal(bias, [1] * 8 + [0] * 4 + [1] * 4)
    split = net.only("Split")
    assert [output.shape[-1] for output in split.outputs] == [8, 4, 4]


def test_different_inputs(net, check, x):
    other = net.input("other", [1, "T", K])
    y, z = (net.linear(v, net.parameter(f"{v.name}.w", [4, K])) for v in (x, other))
    net.output(net.op("Add", [y, z], y.shape))
    assert check(net, merge_linears) == 0


def test_mixed_orientation(net, check, x):
    y = net.linear(x, net.parameter("a.weight", [4, K]))
    z = net.linear(x, net.parameter("b.weight", [K, 4]), transposed=1)
    net.output(net.op("Add", [y, z], y.shape))
    assert check(net, merge_linears) == 0


@pytest.mark.parametrize("kind", ["activation", "residual"])
def test_epilogues_stay_alone(net, check, x, kind):
    y = net.linear(x, net.parameter("a.weight", [K, K]))
    weight = net.parameter("b.weight", [K, K])
    if kind == "activation":
        z = net.linear(x, weight, activation="relu")
    else:
        z = net.op("enginesmith::Linear", [x, weight, None, x], x.shape)
    net.output(net.op("Add", [y, z], y.shape))
    assert check(net, merge_linears) == 0


def test_only_members_of_the_group_are_merged(net, check, x):
    q, k, v = projections(net, x)
    mlp = net.linear(x, net.parameter("mlp.fc1.weight", [6, K]), activation="gelu")
    net.output(*(net.op("Neg", [y], y.shape) for y in (q, k, v, mlp)))
    assert check(net, merge_linears) == 3
    assert net.count("Linear") == 2
