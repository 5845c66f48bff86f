import numpy as np
import pytest

from enginesmith.builder.passes.early_rows import select_rows_early

S = [1, "T", 8]


@pytest.fixture
def x(net):
    return net.input("x", S)


@pytest.fixture
def rows(net):
    return net.input("rows", ["R"], 7)


def select(net, value, rows):
    return net.op("Gather", [value, rows], [1, "R", *value.shape[2:]], axis=1)


def norm(net, value, name="norm"):
    return net.op("enginesmith::RMSNorm", [value, net.parameter(f"{name}.weight", [8])], value.shape, epsilon=1e-6)


def test_through_the_last_layer(net, check, x, rows):
    attention = net.op("Tanh", [net.op("Reshape", [x, net.integers(-1, 8)], ["T", 8])], ["T", 8])
    attention = net.op("Reshape", [attention, net.integers(1, -1, 8)], S)
    o_proj, down = net.parameter("o_proj.weight", [8, 8]), net.parameter("down.weight", [8, 6])
    hidden = net.op("enginesmith::Linear", [attention, o_proj, None, x], S)
    gated = net.op(
        "enginesmith::GatedMLP",
        [norm(net, hidden), net.parameter("gate.weight", [6, 8]), net.parameter("up.weight", [6, 8])],
        [1, "T", 6],
        activation="silu",
    )
    hidden = net.op("enginesmith::Linear", [gated, down, None, hidden], S)
    net.output(net.linear(select(net, norm(net, hidden, "final"), rows), net.parameter("lm_head.weight", [4, 8])))
    assert check(net, select_rows_early) == 5  # norm, down, gated, norm, o_proj
    selections = [node for node in net.graph if node.op_type == "Gather"]
    assert {node.inputs[0] for node in selections} == {x, attention}
    for node in net.graph:
        if node.domain == "enginesmith":
            assert node.outputs[0].shape[1] == "R"


def test_elementwise_with_broadcast_operands(net, check, x, rows):
    y = net.op("Mul", [net.constant(np.arange(8.0)), x], S)
    y = net.op("Add", [net.constant(np.ones((1, 1, 8))), y], S)
    net.output(select(net, net.op("Tanh", [y], S), rows))
    assert check(net, select_rows_early) == 3
    assert net.only("Gather").inputs[0] is x


def test_stops_where_all_rows_are_needed(net, check, x, rows):
    hidden = norm(net, x)
    net.output(select(net, net.op("Tanh", [hidden], S), rows), net.op("Neg", [hidden], S))
    assert check(net, select_rows_early) == 1
    assert net.only("Gather").inputs[0] is hidden


def test_operation_over_rows_is_not_passed(net, check, x, rows):
    y = net.op("Softmax", [x], S, axis=1)
    net.output(select(net, y, rows))
    assert check(net, select_rows_early) == 0


def test_operand_with_a_value_for_each_row_of_another_kind(net, check, rows):
    x, y = net.input("x", [1, 5, 8]), net.input("y", [5, 8])
    net.output(select(net, net.op("Add", [x, y], [1, 5, 8]), rows))
    assert check(net, select_rows_early) == 0


def test_selection_along_another_axis(net, check, x):
    index = net.input("index", [2], 7)
    net.output(net.op("Gather", [net.op("Tanh", [x], S), index], [1, "T", 2], axis=2))
    assert check(net, select_rows_early) == 0
