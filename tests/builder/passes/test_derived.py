from typing import cast

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginesmith.builder.passes.derived import (
    compute,
    depends_on_parameter,
    is_derived,
    parameters_of,
    rows,
)

W = np.arange(48, dtype=np.float32).reshape(8, 6)
V = -np.arange(30, dtype=np.float32).reshape(5, 6)
DATA = {"w": W, "v": V}


@pytest.fixture
def w(net):
    return net.parameter("w", W.shape)


@pytest.fixture
def v(net):
    return net.parameter("v", V.shape)


def read(name):
    return DATA[name]


class Recorder:
    """A stored tensor that remembers how many elements were taken out of it."""

    def __init__(self, array):
        self.array, self.taken = array, 0

    def __getitem__(self, key):
        part = self.array[key]
        self.taken += part.size
        return part


def test_what_is_derived(net, w):
    x = net.input("x", [8, 6])
    constant = net.constant(2.0)
    scaled = net.op("Mul", [w, constant], W.shape)
    assert is_derived(w)
    assert is_derived(constant)
    assert is_derived(scaled)
    assert not is_derived(x)
    assert not is_derived(net.op("Add", [scaled, x], W.shape))
    assert not is_derived(net.op("Gelu", [x], W.shape))
    assert not is_derived(net.op("enginesmith::RMSNorm", [w], W.shape))
    assert not is_derived(None)


def test_leaves(net, w, v):
    total = net.op("Concat", [w, v, w], [21, 6], axis=0)
    assert parameters_of(total) == ["w", "v"]
    assert depends_on_parameter(total)
    assert not depends_on_parameter(net.constant([1.0]))


def test_evaluate_converts_to_float32(net, w):
    result = compute(w, lambda _: W.astype(ml_dtypes.bfloat16))
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, W)


def test_offset_and_negation(net, w):
    shifted = net.op("Neg", [net.op("Add", [w, net.constant(1.0)], W.shape)], W.shape)
    np.testing.assert_array_equal(rows(shifted, 2, 5, read), -(W + 1)[2:5])


def test_broadcast_row_and_column(net, w):
    scaled = net.op("Mul", [w, net.constant(np.arange(6.0))], W.shape)
    scaled = net.op("Mul", [scaled, net.constant(np.arange(8.0)[:, None])], W.shape)
    np.testing.assert_array_equal(rows(scaled, 3, 7, read), (W * np.arange(6.0) * np.arange(8.0)[:, None])[3:7])


def test_columns_of_a_transposed_weight(net, w):
    np.testing.assert_array_equal(rows(w, 1, 4, read, transposed=True), W.T[1:4])
    turned = net.op("Transpose", [w], [6, 8], perm=[1, 0])
    np.testing.assert_array_equal(rows(turned, 1, 4, read), W.T[1:4])


def test_row_ranges_cross_pieces_of_a_concat(net, w, v):
    merged = net.op("Concat", [w, v], [13, 6], axis=0)
    whole = np.concatenate([W, V])
    for first in range(14):
        for last in range(first + 1, 14):
            np.testing.assert_array_equal(rows(merged, first, last, read), whole[first:last])


def test_only_the_rows_wanted_are_read(net, w, v):
    merged = net.op("Concat", [w, v], [13, 6], axis=0)
    stored = {"w": Recorder(W), "v": Recorder(V)}
    rows(merged, 6, 9, lambda name: cast(np.ndarray, stored[name]))
    assert (stored["w"].taken, stored["v"].taken) == (12, 6)


@pytest.mark.parametrize("output", [0, 1])
def test_split(net, w, output):
    parts = net.multi("Split", [w, net.integers(3, 5)], [[3, 6], [5, 6]], axis=0)
    np.testing.assert_array_equal(rows(parts[output], 1, 3, read), [W[:3], W[3:]][output][1:3])


def test_reversed_slice_is_evaluated_whole(net, w):
    flipped = net.op("Slice", [w, *map(net.integers, (-1, -(2**62), 0, -1))], W.shape)
    np.testing.assert_array_equal(rows(flipped, 0, 3, read), W[::-1][:3])


def test_reshape_reads_covering_rows(net):
    stored = Recorder(np.arange(2 * 4 * 6, dtype=np.float32).reshape(2, 4, 6))
    experts = net.parameter("e", [2, 4, 6])
    flat = net.op("Reshape", [experts, net.integers(8, 6)], [8, 6])
    np.testing.assert_array_equal(rows(flat, 1, 3, lambda _: cast(np.ndarray, stored)), stored.array.reshape(8, 6)[1:3])
    assert stored.taken == 24


def test_operation_without_a_rule_of_its_own(net, w):
    gathered = net.op("Gather", [w, net.integers(5, 0, 7)], [3, 6], axis=0)
    np.testing.assert_array_equal(rows(gathered, 1, 3, read), W[[0, 7]])


@st.composite
def expressions(draw, net):
    """A random chain of operations on the weight, with what it should give."""
    value, array = net.parameter("w", W.shape), W
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["concat", "slice", "transpose", "scale", "reshape"]))
        if kind == "concat":
            axis = draw(st.integers(0, array.ndim - 1))
            array = np.concatenate([array, array], axis)
            value = net.op("Concat", [value, value], array.shape, axis=axis)
        elif kind == "slice":
            axis = draw(st.integers(0, array.ndim - 1))
            start = draw(st.integers(0, array.shape[axis] - 1))
            end = draw(st.integers(start + 1, array.shape[axis]))
            step = draw(st.integers(1, 3))
            array = array[tuple(slice(start, end, step) if i == axis else slice(None) for i in range(array.ndim))]
            value = net.op("Slice", [value, *map(net.integers, (start, end, axis, step))], array.shape)
        elif kind == "transpose":
            perm = draw(st.permutations(range(array.ndim)))
            array = array.transpose(perm)
            value = net.op("Transpose", [value], array.shape, perm=perm)
        elif kind == "scale":
            row = np.arange(array.shape[-1], dtype=np.float32)
            array = array * row
            value = net.op("Mul", [value, net.constant(row)], array.shape)
        else:
            size, first = array.size, array.shape[0]
            rest = draw(st.sampled_from([[size], [1, size], [first, size // first]]))
            array = array.reshape(rest)
            value = net.op("Reshape", [value, net.integers(*rest)], array.shape)
    return value, array


@settings(max_examples=150)
@given(data=st.data())
def test_any_rows_of_any_expression(data, new_network):
    value, array = data.draw(expressions(new_network()))
    first = data.draw(st.integers(0, array.shape[0] - 1))
    last = data.draw(st.integers(first + 1, array.shape[0]))
    np.testing.assert_array_equal(rows(value, first, last, read), array[first:last])
    np.testing.assert_array_equal(compute(value, read), array)
