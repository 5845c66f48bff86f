"""AWQ: whatever lies in the words comes out, in their order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quantized_models import random_grid, store_awq, store_awq_gemv

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


@settings(max_examples=25)
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


@settings(max_examples=25)
@given(
    n=st.integers(1, 20),
    groups=st.integers(1, 20),
    group=st.sampled_from([16, 32, 64, 128]),
    seed=st.integers(0, 99),
    first=st.integers(0, 19),
)
def test_gemv(open_stored, n: int, groups: int, group: int, seed: int, first: int) -> None:
    k, first = min(groups * group, 640), first % n
    grid = random_grid(np.random.default_rng(seed), n, k, 4, group, symmetric=False)
    checkpoint = open_stored(store_awq_gemv(grid, group), config(group, version="gemv"))
    weight = bind_weights(checkpoint, layout_of(checkpoint), {"a.weight": (n, k)}).stored["a.weight"]
    assert str(weight.scheme) == f"int4-g{group}-zeros"
    np.testing.assert_array_equal(weight.dequantize(), grid.values())
    rows = weight.rows(first, n)
    np.testing.assert_array_equal(rows.q, grid.q[first:] - 8)
    assert rows.zero is not None
    np.testing.assert_array_equal(rows.zero, grid.zero[first:] - 8)


def test_what_config_says_of_modules_left_alone_is_not_needed(open_stored) -> None:
    grid = random_grid(np.random.default_rng(0), 8, 32, 4, 16, symmetric=False)
    left = {"modules_to_not_convert": ["b"], "modules_to_save": ["b"], "exllama_config": {"version": 2}}
    checkpoint = open_stored(store_awq(grid) | {"b.weight": np.ones((2, 2), np.float32)}, config(16, **left))
    weights = bind_weights(checkpoint, layout_of(checkpoint), {"a.weight": (8, 32), "a.b.weight": (2, 2)})
    assert list(weights.stored) == ["a.weight"]


@pytest.mark.parametrize(
    ("changes", "packing"),
    [
        ({"version": "gemv_fast"}, 'AWQ of 4 bits, version "gemv_fast"'),
        ({"version": "gemv", "group_size": 8}, 'AWQ of 4 bits, version "gemv", in groups of 8'),
        ({"version": "gemv", "group_size": -1}, 'AWQ of 4 bits, version "gemv", in groups of K'),
        ({"bits": 3}, 'AWQ of 3 bits, version "gemm"'),
    ],
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


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scales_that_are_no_numbers(open_stored, value: float) -> None:
    tensors = store_awq(random_grid(np.random.default_rng(0), 16, 32, 4, 16, symmetric=False))
    tensors["scales"][1, 3] = value
    checkpoint = open_stored(tensors, config(16))
    with pytest.raises(CheckpointError, match=r"a\.scales: holds NaN or an infinity; the file is damaged"):
        bind_weights(checkpoint, layout_of(checkpoint), {"a.weight": (16, 32)})


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
