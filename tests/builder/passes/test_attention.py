"""Passes around attention: partial rotary embeddings and scales."""

import pytest

from enginesmith.builder.passes.attention_scale import fold_attention_scales
from enginesmith.builder.passes.partial_rotary import fuse_partial_rotary

HEADS = [1, 2, "T", 8]


@pytest.fixture
def tables(net):
    return [net.input("cos", [1, "T", 4]), net.input("sin", [1, "T", 4])]


def rotary(net, x, tables, style="neox"):
    attrs = {"style": style, "rotary_dim": 4, "cos_stride": 1, "heads_axis": 1}
    return net.op("enginesmith::RotaryEmbedding", [x, *tables], x.shape, **attrs)


@pytest.mark.parametrize("style", ["neox", "gptj", "gptj_to_neox"])
def test_partial_rotary(net, check, tables, style):
    x = net.input("x", HEADS)
    first, rest = net.multi("Split", [x, net.integers(4, 4)], [[1, 2, "T", 4]] * 2, axis=-1)
    net.output(net.op("Concat", [rotary(net, first, tables, style), rest], HEADS, axis=3))
    assert check(net, fuse_partial_rotary) == 1
    assert [node.op_type for node in net.graph] == ["RotaryEmbedding"]


def test_rotary_of_the_second_piece(net, check, tables):
    x = net.input("x", HEADS)
    first, rest = net.multi("Split", [x, net.integers(4, 4)], [[1, 2, "T", 4]] * 2, axis=3)
    net.output(
        net.op("Concat", [first, rotary(net, rest, tables)], HEADS, axis=3),
        net.op("Concat", [rotary(net, rest, tables), first], HEADS, axis=3),
    )
    assert check(net, fuse_partial_rotary) == 0


def test_pieces_of_different_tensors(net, check, tables):
    x, y = net.input("x", HEADS), net.input("y", HEADS)
    first, _ = net.multi("Split", [x, net.integers(4, 4)], [[1, 2, "T", 4]] * 2, axis=3)
    _, rest = net.multi("Split", [y, net.integers(4, 4)], [[1, 2, "T", 4]] * 2, axis=3)
    net.output(net.op("Concat", [rotary(net, first, tables), rest], HEADS, axis=3))
    assert check(net, fuse_partial_rotary) == 0


def test_rotated_piece_read_elsewhere(net, check, tables):
    x = net.input("x", HEADS)
    first, rest = net.multi("Split", [x, net.integers(4, 4)], [[1, 2, "T", 4]] * 2, axis=3)
    rotated = rotary(net, first, tables)
    net.output(net.op("Concat", [rotated, rest], HEADS, axis=3), net.op("Neg", [rotated], first.shape))
    assert check(net, fuse_partial_rotary) == 0


def attend(net, q, k):
    return net.op("enginesmith::PagedAttention", [q, k, k], [1, "T", 2, 8], cache_layer=0, scale=0.5, softcap=2.0)


def heads(net, x):
    return net.op(
        "Transpose", [net.op("Reshape", [x, net.integers(1, -1, 2, 8)], [1, "T", 2, 8])], HEADS, perm=[0, 2, 1, 3]
    )


def test_query_and_key_scales(net, check, tables):
    x, k = net.input("x", [1, "T", 16]), net.input("k", HEADS)
    q = rotary(net, heads(net, net.op("Mul", [net.constant(0.25), x], x.shape)), tables)
    net.output(attend(net, q, net.op("Mul", [k, net.constant(3.0)], HEADS)))
    net.graph.outputs[0].producer().replace_input_with(2, k)
    assert check(net, fold_attention_scales) == 2
    assert net.count("Mul") == 0
    assert net.only("PagedAttention").attributes.get_float("scale") == pytest.approx(0.5 * 0.25 * 3.0)


def test_division(net, check):
    x, k = net.input("x", HEADS), net.input("k", HEADS)
    net.output(attend(net, net.op("Div", [x, net.constant(4.0)], HEADS), k))
    assert check(net, fold_attention_scales) == 1


def test_scaled_value_read_elsewhere(net, check):
    x, k = net.input("x", HEADS), net.input("k", HEADS)
    q = net.op("Mul", [x, net.constant(4.0)], HEADS)
    net.output(attend(net, q, k), net.op("Neg", [q], HEADS))
    assert check(net, fold_attention_scales) == 0


def test_values_are_not_scaled(net, check):
    x, k = net.input("x", HEADS), net.input("k", HEADS)
    v = net.op("Mul", [k, net.constant(4.0)], HEADS)
    net.output(net.op("enginesmith::PagedAttention", [x, k, v], [1, "T", 2, 8], cache_layer=0, scale=0.5))
    assert check(net, fold_attention_scales) == 0


def test_norm_in_between_stops(net, check):
    x, k = net.input("x", HEADS), net.input("k", HEADS)
    q = net.op("Mul", [x, net.constant(4.0)], HEADS)
    q = net.op("enginesmith::RMSNorm", [q], HEADS, epsilon=1e-6)
    net.output(attend(net, q, k))
    assert check(net, fold_attention_scales) == 0
