import numpy as np
from known import known

from enginesmith.builder.passes.constant_folding import fold_constants
from enginesmith.builder.passes.graph import constant


def test_constants_become_initializers(net, check):
    net.output(net.op("Add", [net.input("x", [3]), net.op("Constant", [], [3], value_floats=[1.0, 2.0, 3.0])], [3]))
    check(net, fold_constants)
    assert [node.op_type for node in net.graph] == ["Add"]
    np.testing.assert_array_equal(constant(net.only("Add").inputs[1]), np.array([1, 2, 3], np.float32))


def test_chains_fold_to_their_end(net, check):
    steps = net.op("Range", [net.constant(0, np.int64), net.constant(8, np.int64), net.constant(2, np.int64)], [4], 7)
    y = net.op("Div", [net.op("Cast", [steps], [4], to=1), net.constant(8.0)], [4])
    net.output(net.op("Mul", [net.input("x", ["T", 4]), y], ["T", 4]))
    assert check(net, fold_constants) == 3
    assert [node.op_type for node in net.graph] == ["Mul"]
    np.testing.assert_array_equal(constant(net.only("Mul").inputs[1]), np.arange(0, 8, 2, dtype=np.float32) / 8)


def test_operation_evaluated_by_the_reference(net, check):
    y = net.op("CumSum", [net.constant([1.0, 2.0, 3.0]), net.constant(0, np.int64)], [3])
    net.output(net.op("Add", [net.input("x", [3]), y], [3]))
    assert check(net, fold_constants) == 1


def test_parameters_are_never_folded(net, check):
    w = net.op("Mul", [net.parameter("w", [4]), net.constant(2.0)], [4])
    net.output(net.op("Add", [net.input("x", ["T", 4]), w], ["T", 4]))
    assert check(net, fold_constants) == 0


def test_large_and_random_results_stay(net):
    big = net.op("Expand", [net.constant(1.0), net.integers(2048, 1024)], [2048, 1024])
    noise = net.op("RandomUniformLike", [net.constant([1.0])], [1])
    net.output(big, noise)
    assert fold_constants(net.graph) == 0
    assert net.count("Expand") == net.count("RandomUniformLike") == 1


def test_integer_division_rounds_towards_zero(net, check):
    y = net.op("Div", [net.integers(-7, 7), net.integers(2, -2)], [2], 7)
    net.output(net.op("Add", [net.input("x", [2], 7), y], [2], 7))
    check(net, fold_constants)
    assert known(constant(net.only("Add").inputs[1])).tolist() == [-3, -3]


def test_folded_output_keeps_its_name(net, check):
    y = net.op("Neg", [net.constant([1.0])], [1])
    y.name = "answer"
    net.output(y)
    assert check(net, fold_constants) == 1
    assert net.graph.outputs[0].name == "answer"
