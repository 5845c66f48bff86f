"""AWQ: whatever lies in the words comes out, in their order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quantized_models import random_grid, store_awq

from enginesmith.checkpoint.layouts.registry import layout_of
from enginesmith.checkpoint.weights import bind_weights
from enginesmith.errors import CheckpointError


def config(group: int, **changes: object) -> dict:
    return {
        "quant_method": "awq",
        "bits": 4,
        "group_size": group or -1,
        "version": "gemm",
        "zero_point": True,
    } | changes


@settings(deadline=None, max_examples=25)
@given(
    n=st.integers(1, 6).map(lambda i: 8 * i),
    k=st.integers(1, 40),
    group=st.sampled_from([0, 4, 16, 32]),
    seed=st.integers(0, 99),
    first=st.integers(0, 7),
)
def test_integers_and_values_come_back(open_stored, n: int, k: int, group: int, seed: int, first: int) -> None:
    grid = random_grid(np.random.default_rng(seed), n, k, 4, group, symmetric=False)
    checkpoint = open_stored(store_awq(grid), config(group))
    weight = bind_weights(checkpoint, layout_of(checkpoint), {"a.weight": (n, k)}).stored["a.weight"]
    assert str(weight.scheme) == f"int4-g{group or 128}-zeros"
    rows = weight.rows(first, n)
    assert rows.zero is not None
    np.testing.assert_array_equal(rows.q, grid.q[first:] - 8)
    repeats = 1 if group else -(-k // 128)
    np.testing.assert_array_equal(rows.zero, np.repeat(grid.zero[first:] - 8, repeats, axis=1))
    np.testing.assert_array_equal(rows.scale, np.repeat(grid.scale[first:].astype(np.float32), repeats, axis=1))
    np.testing.assert_array_equal(weight.dequantize(), grid.values())
    np.testing.assert_array_equal(weight[first:n, 1:k], grid.values()[first:, 1:])
    np.testing.assert_array_equal(rows.dequantize(group or 128), grid.values()[first:])


@pytest.mark.parametrize(
    ("changes", "packing"),
    [({"version": "gemv"}, 'AWQ of 4 bits, version "gemv"'), ({"bits": 3}, 'AWQ of 3 bits, version "gemm"')],
)
def test_other_packings_are_named(open_stored, changes: dict, packing: str) -> None:
    grid = random_grid(np.random.default_rng(0), 8, 32, 4, 16, symmetric=False)
    with pytest.raises(CheckpointError, match=rf"packed as {packing} \(as in a\.qweight, int32 \[32, 1\]\)"):
        layout_of(open_stored(store_awq(grid), config(16, **changes)))


def test_every_offender_is_listed(open_stored) -> None:
    grid = random_grid(np.random.default_rng(0), 16, 32, 4, 16, symmetric=False)
    tensors = store_awq(grid)
    tensors["scales"] = tensors["scales"][:1]
    del tensors["qzeros"]
    checkpoint = open_stored({**tensors, "extra": np.zeros(3)}, config(16))
    with pytest.raises(CheckpointError) as caught:
        bind_weights(checkpoint, layout_of(checkpoint), {"a.weight": (16, 32), "b.weight": (2, 2)})
    for line in (
        "a.qzeros: missing",
        "a.scales: expected [2, 16], found [1, 16]",
        "missing (1): b.weight",
        "unexpected (1): a.extra",
    ):
        assert line in str(caught.value)


def test_plain_weights_beside_quantized_ones(open_stored) -> None:
    grid = random_grid(np.random.default_rng(0), 8, 32, 4, 16, symmetric=False)
    plain = {"b.weight": np.ones((2, 2), np.float32)}
    checkpoint = open_stored(store_awq(grid) | {"c.d.weight": plain["b.weight"], "bias": np.zeros(8)}, config(16))
    parameters = {"model.a.weight": (8, 32), "model.a.c.d.weight": (2, 2)}
    weights = bind_weights(checkpoint, layout_of(checkpoint), parameters, base_prefix="model")
    assert list(weights.stored) == ["model.a.weight"]  # and the bias of zeros, which the model has not, is no offence
    assert weights.tensors == {"model.a.c.d.weight": "a.c.d.weight"}
    np.testing.assert_array_equal(weights.values("model.a.weight"), grid.values())
    np.testing.assert_array_equal(weights.values("model.a.c.d.weight"), plain["b.weight"])
