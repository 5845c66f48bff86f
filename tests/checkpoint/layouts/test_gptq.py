"""GPTQ: both conventions for zeros, 4 and 8 bits, groups in a row and scattered."""

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quantized_models import Grid, random_grid, store_gptq

from enginesmith.checkpoint.layouts.registry import layout_of
from enginesmith.checkpoint.layouts.stored import StoredWeight
from enginesmith.checkpoint.weights import bind_weights
from enginesmith.errors import CheckpointError


def config(bits: int, group: int, sym: bool, **changes: object) -> dict:
    return {"quant_method": "gptq", "bits": bits, "group_size": group or -1, "sym": sym} | changes


def stored(checkpoint, n: int, k: int) -> StoredWeight:
    return bind_weights(checkpoint, layout_of(checkpoint), {"a.weight": (n, k)}).stored["a.weight"]


@settings(max_examples=40)
@given(
    n=st.integers(1, 5).map(lambda i: 8 * i),
    k=st.integers(1, 6).map(lambda i: 8 * i),
    bits=st.sampled_from([4, 8]),
    group=st.sampled_from([0, 4, 16, 32]),
    symmetric=st.booleans(),
    form=st.sampled_from(["gptq", "gptq_v2"]),
    seed=st.integers(0, 99),
    first=st.integers(0, 7),
)
def test_integers_and_values_come_back(
    open_stored, n: int, k: int, bits: int, group: int, symmetric: bool, form: str, seed: int, first: int
) -> None:
    grid = random_grid(np.random.default_rng(seed), n, k, bits, group, symmetric=symmetric)
    added = int(form == "gptq")
    if not symmetric:
        grid = Grid(grid.q, grid.zero + added, grid.scale, grid.group)  # 1 to 2^bits where 0 cannot be stored
    tensors = store_gptq(grid, bits, added, g_idx=seed % 2 == 0)
    weight = stored(open_stored(tensors, config(bits, group, symmetric, checkpoint_format=form)), n, k)
    np.testing.assert_array_equal(weight.dequantize(), grid.values())
    np.testing.assert_array_equal(weight[first:n, :], grid.values()[first:])
    if bits == 8 and not symmetric:
        assert weight.scheme is None
        assert "zero points" in weight.reason
        return
    assert weight.scheme is not None
    assert weight.scheme.symmetric == symmetric
    rows = weight.rows(first, n)
    np.testing.assert_array_equal(rows.q, grid.q[first:] - (1 << (bits - 1)))
    np.testing.assert_array_equal(rows.dequantize(weight.scheme.group_size), grid.values()[first:])


def test_the_convention_is_logged_and_v1_is_the_default(open_stored, caplog: pytest.LogCaptureFixture) -> None:
    grid = random_grid(np.random.default_rng(0), 8, 16, 4, 8, symmetric=True)
    with caplog.at_level(logging.INFO):
        weight = stored(open_stored(store_gptq(grid, 4, 1), config(4, 8, True)), 8, 16)
        layout_of(open_stored(store_gptq(grid, 4, 0), config(4, 8, True, checkpoint_format="gptq_v2")))
    assert str(weight.scheme) == "int4-g8"
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == [
        "zeros are stored as zero - 1 (gptq)",
        "zeros are stored as they are (gptq_v2)",
    ]


@pytest.mark.parametrize("form", ["gptq", "gptq_v2"])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("said", [True, None])
def test_symmetric_zeros_by_the_other_convention_are_the_middle(
    open_stored, form: str, bits: int, said: bool | None
) -> None:
    grid = random_grid(np.random.default_rng(0), 8, 16, bits, 8, symmetric=True)
    tensors = store_gptq(grid, bits, int(form != "gptq"))
    checkpoint = open_stored(tensors, config(bits, 8, True, checkpoint_format=form) | {"sym": said})
    layout = layout_of(checkpoint)
    assert layout is not None
    weights = bind_weights(checkpoint, layout, {"a.weight": (8, 16)})
    (note,) = layout.notes
    assert f"other convention than checkpoint_format '{form}' says (as in a.qzeros): taken as {1 << bits - 1}" in note
    assert str(weights.stored["a.weight"].scheme) == f"int{bits}-g8"
    np.testing.assert_array_equal(weights.values("a.weight"), grid.values())
    np.testing.assert_array_equal(weights.reference("a.weight"), grid.values())


@pytest.mark.parametrize("zero", [0, 5, 6, 10, 11, None])
def test_a_weight_said_to_be_symmetric_that_is_not(open_stored, zero: int | None) -> None:
    grid = random_grid(np.random.default_rng(0), 8, 16, 4, 8, symmetric=False)
    if zero is not None:
        grid = Grid(grid.q, np.full_like(grid.zero, zero), grid.scale, grid.group)
    with pytest.raises(
        CheckpointError, match=r"a\.qzeros: zero points lie from .* sym: true\. The checkpoint contradicts"
    ):
        stored(open_stored(store_gptq(grid, 4, 0), config(4, 8, True, checkpoint_format="gptq_v2")), 8, 16)


def test_modules_by_both_conventions(open_stored) -> None:
    grid = random_grid(np.random.default_rng(0), 8, 16, 4, 8, symmetric=True)
    parts = [
        {f"{name}.{suffix}": part for suffix, part in store_gptq(grid, 4, added).items()}
        for name, added in (("b", 1), ("c", 0))
    ]
    checkpoint = open_stored(parts[0] | parts[1], config(4, 8, True))
    with pytest.raises(CheckpointError, match=r"a\.b\.qzeros and a\.c\.qzeros: symmetric zero points by both"):
        bind_weights(checkpoint, layout_of(checkpoint), {"a.b.weight": (8, 16), "a.c.weight": (8, 16)})


def test_scattered_groups_without_act_order(open_stored) -> None:
    grid = random_grid(np.random.default_rng(1), 16, 32, 4, 8, symmetric=True)
    grid = Grid(grid.q, grid.zero, grid.scale, grid.group[::-1])
    with pytest.raises(CheckpointError, match=r"a\.g_idx: scatters groups .* desc_act: false"):
        stored(open_stored(store_gptq(grid, 4, 1), config(4, 8, True, desc_act=False)), 16, 32)


def test_scattered_groups_give_values_and_no_scheme(open_stored) -> None:
    rng = np.random.default_rng(1)
    grid = random_grid(rng, 16, 32, 4, 8, symmetric=False)
    grid = Grid(grid.q, np.maximum(grid.zero, 1), grid.scale, rng.permutation(grid.group))
    weight = stored(open_stored(store_gptq(grid, 4, 1), config(4, 8, False, desc_act=True)), 16, 32)
    assert weight.scheme is None
    assert "act-order" in weight.reason
    np.testing.assert_array_equal(weight.dequantize(), grid.values())
    with pytest.raises(ValueError, match="act-order"):
        weight.rows(0, 1)


def test_a_group_that_is_none(open_stored) -> None:
    grid = random_grid(np.random.default_rng(0), 8, 16, 4, 8, symmetric=True)
    tensors = store_gptq(grid, 4, 1)
    tensors["g_idx"][3] = 2
    with pytest.raises(CheckpointError, match=r"a\.g_idx: holds groups from 0 to 2; there are 2"):
        stored(open_stored(tensors, config(4, 8, True)), 8, 16)


@pytest.mark.parametrize(
    ("bits", "changes", "packing"),
    [
        (3, {}, 'GPTQ of 3 bits, checkpoint_format "gptq"'),
        (2, {"checkpoint_format": "gptq_v2"}, 'GPTQ of 2 bits, checkpoint_format "gptq_v2"'),
        (4, {"checkpoint_format": "marlin"}, 'GPTQ of 4 bits, checkpoint_format "marlin"'),
    ],
)
def test_other_packings_are_named(open_stored, bits: int, changes: dict, packing: str) -> None:
    tensors = {"qweight": np.zeros((3, 8), np.int32)}
    with pytest.raises(CheckpointError, match=rf"packed as {packing} \(as in a\.qweight, int32 \[3, 8\]\)"):
        layout_of(open_stored(tensors, config(bits, 8, True, **changes)))


def test_scales_that_fp16_cannot_hold(open_stored) -> None:
    grid = random_grid(np.random.default_rng(0), 8, 16, 4, 8, symmetric=True, dtype=np.float32)
    weight = stored(open_stored(store_gptq(grid, 4, 1), config(4, 8, True)), 8, 16)
    assert weight.scheme is None
    assert "fp16" in weight.reason
    np.testing.assert_array_equal(weight.dequantize(), grid.values())


def test_rules_for_single_modules(open_stored) -> None:
    """ "-:" are not quantized, "+:" and bare patterns are otherwise, and the first that fits wins."""
    usual = random_grid(np.random.default_rng(0), 8, 32, 4, 16, symmetric=True)
    eight = random_grid(np.random.default_rng(1), 8, 32, 8, 0, symmetric=True)
    finer = random_grid(np.random.default_rng(2), 8, 32, 4, 8, symmetric=True)
    rules = {
        r"-:.*\.k_proj": {},
        r"+:a\.v_proj": {"bits": 8, "group_size": -1},
        r".*_proj": {"group_size": 8},
    }
    grids = {"a.q": usual, "a.v_proj": eight, "a.o_proj": finer}
    tensors = {"k_proj.weight": np.ones((2, 2), np.float32)}
    for name, grid in grids.items():
        bits = 8 if grid is eight else 4
        tensors |= {f"{name[2:]}.{suffix}": part for suffix, part in store_gptq(grid, bits, 1).items()}
    checkpoint = open_stored(tensors, config(4, 16, True, dynamic=rules))
    layout = layout_of(checkpoint)
    assert layout is not None
    assert layout.title == "GPTQ, int4 in groups of 16 and int8 in groups of K and int4 in groups of 8, gptq zeros"
    shapes = {f"{name}.weight": (8, 32) for name in grids} | {"a.k_proj.weight": (2, 2)}
    weights = bind_weights(checkpoint, layout, shapes)
    assert [str(weights.stored[f"{name}.weight"].scheme) for name in grids] == ["int4-g16", "int8", "int4-g8"]
    for name, grid in grids.items():
        np.testing.assert_array_equal(weights.values(f"{name}.weight"), grid.values())
    assert "a.k_proj.weight" in weights.tensors


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (["a"], "dynamic should map patterns to objects"),
        ({"a": 3}, "dynamic should map patterns to objects"),
        ({"+:(": {}}, r"'\+:\(' is no pattern: "),
        ({"a": {"bits": 3}}, "packed as GPTQ of 3 bits"),
        ({"a": {"group_size": "all"}}, "group_size should be a whole number, found 'all'"),
    ],
)
def test_rules_that_make_no_sense(open_stored, rules: object, message: str) -> None:
    tensors = store_gptq(random_grid(np.random.default_rng(0), 8, 16, 4, 8, symmetric=True), 4, 1)
    with pytest.raises(CheckpointError, match=message):
        layout_of(open_stored(tensors, config(4, 8, True, dynamic=rules)))
