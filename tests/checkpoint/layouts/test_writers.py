"""What writers pack is what the formats say, one number at a time, and comes back from the readers as it was."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quantized_models import (
    FP8,
    Grid,
    fp8_values,
    random_grid,
    store_awq,
    store_gptq,
    store_int8,
    store_packed,
)

from enginesmith.checkpoint.layouts.registry import layout_of
from enginesmith.checkpoint.layouts.stored import StoredWeight
from enginesmith.checkpoint.layouts.writers import writer_of
from enginesmith.checkpoint.weights import bind_weights
from enginesmith.errors import BuildError
from enginesmith.quantization.quantized import QuantizedWeight
from enginesmith.quantization.scheme import ActivationScheme, KvType, LinearScheme, WeightScheme, WeightType

INT = {4: WeightType.INT4, 8: WeightType.INT8}


def scheme(bits: int, group: int, symmetric: bool = True, activation: str = "none") -> LinearScheme:
    return LinearScheme(WeightScheme(INT[bits], group, symmetric), ActivationScheme(activation))


def weight_of(grid: Grid, bits: int, symmetric: bool) -> QuantizedWeight:
    middle = 1 << (bits - 1)
    zero = None if symmetric else (grid.zero - middle).astype(np.float32)
    return QuantizedWeight((grid.q - middle).astype(np.int8), grid.scale.astype(np.float32), zero)


def stored_in(grid: Grid, asked: int, stored: int) -> Grid:
    """The same weights in smaller groups, of which `asked` is a multiple."""
    if not asked:
        return grid
    k = grid.q.shape[1]
    of = np.arange(k // stored) * stored // asked
    return Grid(grid.q, grid.zero[:, of], grid.scale[:, of], np.arange(k) // stored)


def read(open_stored, tensors, config, n: int, k: int) -> StoredWeight:
    checkpoint = open_stored(tensors, config)
    return bind_weights(checkpoint, layout_of(checkpoint), {"a.weight": (n, k)}).stored["a.weight"]


def assert_same(tensors: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert tensors.keys() == expected.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(tensor, expected[name], err_msg=name)
        assert tensor.flags.c_contiguous, name


def assert_comes_back(weight: StoredWeight, grid: Grid, bits: int, group: int) -> None:
    np.testing.assert_array_equal(weight.dequantize(), grid.values())
    assert weight.scheme is not None
    assert weight.scheme.group_size == group
    rows = weight.rows(0, len(grid.q))
    np.testing.assert_array_equal(rows.q, grid.q - (1 << (bits - 1)))
    np.testing.assert_array_equal(rows.scale, grid.scale.astype(np.float32))
    if rows.zero is not None:
        np.testing.assert_array_equal(rows.zero, grid.zero - (1 << (bits - 1)))


SHAPES = {
    "n": st.integers(1, 5).map(lambda i: 8 * i),
    "k": st.integers(4, 9).map(lambda i: 8 * i),
    "group": st.sampled_from([0, 8, 16, 32]),
    "seed": st.integers(0, 99),
}


@settings(max_examples=40)
@given(**SHAPES, bits=st.sampled_from([4, 8]), symmetric=st.booleans(), odd=st.integers(0, 3))
def test_compressed_tensors_packs_words(open_stored, n, k, group, seed, bits, symmetric, odd) -> None:
    symmetric = symmetric or bits == 8 or not group
    n, k = n + odd, k if group else k + odd  # words may be left half empty
    grid = random_grid(np.random.default_rng(seed), n, k, bits, group, symmetric=symmetric)
    writer = writer_of("compressed-tensors", scheme(bits, group, symmetric))
    writer.check("a", n, k)
    common = math.gcd(group, k) if group else 0
    tensors, smaller = writer.pack(weight_of(grid, bits, symmetric)), stored_in(grid, group, common)
    assert_same(tensors, store_packed(smaller, bits, symmetric=symmetric))
    assert_comes_back(read(open_stored, tensors, writer.config(["lm_head"]), n, k), smaller, bits, common)


@settings(max_examples=25)
@given(**SHAPES)
def test_awq(open_stored, n, k, group, seed) -> None:
    group = group or 8
    grid = random_grid(np.random.default_rng(seed), n, k, 4, group, symmetric=False)
    writer = writer_of("awq", scheme(4, group, False))
    writer.check("a", n, k)
    common = math.gcd(group, k)
    tensors, smaller = writer.pack(weight_of(grid, 4, False)), stored_in(grid, group, common)
    assert_same(tensors, store_awq(smaller))
    assert_comes_back(read(open_stored, tensors, writer.config(), n, k), smaller, 4, common)


@settings(max_examples=40)
@given(**SHAPES, bits=st.sampled_from([4, 8]), symmetric=st.booleans())
def test_gptq(open_stored, n, k, group, seed, bits, symmetric) -> None:
    symmetric = symmetric or bits == 8 or not group
    grid = random_grid(np.random.default_rng(seed), n, k, bits, group, symmetric=symmetric)
    writer = writer_of("gptq", scheme(bits, group, symmetric))
    writer.check("a", n, k)
    common = math.gcd(group, k) if group else 0
    tensors, smaller = writer.pack(weight_of(grid, bits, symmetric)), stored_in(grid, group, common)
    assert_same(tensors, store_gptq(smaller, bits, added=int(symmetric)))  # a zero of 0 has no place in the first
    assert writer.config()["checkpoint_format"] == ("gptq" if symmetric else "gptq_v2")
    assert_comes_back(read(open_stored, tensors, writer.config(["lm_head"]), n, k), smaller, bits, common)


@pytest.mark.parametrize("activation", ["dynamic", "static"])
@pytest.mark.parametrize("group", [0, 16])
def test_int8_with_rounded_inputs_stays_bytes(open_stored, activation: str, group: int) -> None:
    grid = random_grid(np.random.default_rng(0), 9, 64, 8, group, symmetric=True)
    writer = writer_of("compressed-tensors", scheme(8, group, activation=activation))
    writer.check("a", 9, 64)
    tensors = writer.pack(weight_of(grid, 8, True), 0.25 if activation == "static" else None)
    static = {"input_scale": np.array([0.25], np.float32)} if activation == "static" else {}
    assert_same(tensors, store_int8(grid) | static)
    config = writer.config(["lm_head"])
    assert config["format"] == "int-quantized"
    inputs = config["config_groups"]["group_0"]["input_activations"]
    assert (inputs["strategy"], inputs["dynamic"]) == (
        ("token", True) if activation == "dynamic" else ("tensor", False)
    )
    assert_comes_back(read(open_stored, tensors, config, 9, 64), grid, 8, group)


@pytest.mark.parametrize("activation", ["none", "dynamic", "static"])
@pytest.mark.parametrize("per_tensor", [False, True])
def test_fp8(open_stored, activation: str, per_tensor: bool) -> None:
    rng = np.random.default_rng(0)
    q = rng.normal(0, 50, (9, 33)).astype(FP8)
    scale = rng.uniform(1e-4, 1e-2, (9, 1)).astype(np.float32)
    if per_tensor:
        scale[:] = scale[0]
    asked = LinearScheme(WeightScheme(WeightType.FP8), ActivationScheme(activation))
    writer = writer_of("compressed-tensors", asked, per_tensor=per_tensor)
    writer.check("a", 9, 33)
    tensors = writer.pack(QuantizedWeight(q, scale), 0.5 if activation == "static" else None)
    expected = {"weight": q, "weight_scale": scale[0] if per_tensor else scale}
    static = {"input_scale": np.array([0.5], np.float32)} if activation == "static" else {}
    assert_same(tensors, expected | static)
    weight = read(open_stored, tensors, writer.config(), 9, 33)
    np.testing.assert_array_equal(weight.dequantize(), fp8_values(q, scale, (1, 33)))


def test_all_layers_share_the_largest_group_that_divides_their_inputs() -> None:
    writer = writer_of("compressed-tensors", scheme(4, 128))
    for k in (1536, 576):
        writer.check("a", 8, k)
    group = writer.config()["config_groups"]["group_0"]["weights"]["group_size"]
    assert group == 64


def test_scales_beyond_fp16_stay_float32() -> None:
    weight = QuantizedWeight(np.ones((2, 8), np.int8), np.full((2, 1), 0.1, np.float32))
    tensors = writer_of("compressed-tensors", scheme(8, 0)).pack(weight)
    np.testing.assert_array_equal(tensors["weight_scale"], weight.scale)
    for form in ("awq", "gptq"):
        zero = np.zeros((2, 1), np.float32)
        writer = writer_of(form, scheme(4, 8, False))
        with pytest.raises(ValueError, match="exact in fp16"):
            writer.pack(
                QuantizedWeight(np.ones((8, 8), np.int8), np.full((8, 1), 0.1, np.float32), zero[:1].repeat(8, 0))
            )


@pytest.mark.parametrize(
    ("form", "asked", "n", "k", "message"),
    [
        ("compressed-tensors", scheme(4, 128), 8, 64, "a.b: groups of 128 weights are longer than its 64 inputs"),
        ("compressed-tensors", scheme(4, 32), 8, 70, "a.b: its 70 inputs cannot be cut into equal groups that 32"),
        ("awq", scheme(4, 32, False), 12, 64, "a.b: AWQ packs 8 outputs to a word, and it has 12"),
        ("gptq", scheme(4, 0), 8, 70, "a.b: GPTQ packs 8 inputs to a word, and it has 70"),
        ("gptq", scheme(8, 0), 6, 72, "a.b: GPTQ packs 4 outputs to a word, and it has 6"),
    ],
)
def test_layers_that_cannot_be_packed(form: str, asked: LinearScheme, n: int, k: int, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        writer_of(form, asked).check("a.b", n, k)


FP8_WEIGHTS = WeightScheme(WeightType.FP8)


@pytest.mark.parametrize(
    ("form", "asked", "message"),
    [
        ("awq", scheme(4, 32), "AWQ format holds int4 weights in groups with zero points, not int4-g32"),
        ("awq", scheme(8, 32), "not int8-g32"),
        ("awq", scheme(4, 0), "not int4"),
        ("gptq", LinearScheme(FP8_WEIGHTS), "GPTQ format holds int4 and int8 weights without .* not fp8"),
        ("gptq", scheme(8, 0, activation="dynamic"), "not int8-dynamic"),
        ("compressed-tensors", LinearScheme(WeightScheme(WeightType.FP8, 32)), "FP8 weights by channel or tensor"),
        ("compressed-tensors", LinearScheme(WeightScheme(WeightType.BF16)), "not bf16"),
        ("exl2", scheme(4, 32), "no format named 'exl2'; known: compressed-tensors, awq, gptq"),
    ],
)
def test_schemes_that_a_format_lacks(form: str, asked: LinearScheme, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        writer_of(form, asked)


@pytest.mark.parametrize("form", ["awq", "gptq"])
def test_only_compressed_tensors_tells_of_a_kv_cache(form: str) -> None:
    with pytest.raises(BuildError, match=f"the {form} format says nothing of a KV cache"):
        writer_of(form, scheme(4, 32, form == "gptq"), KvType.FP8)


@pytest.mark.parametrize(
    ("kind", "type_", "strategy"), [(KvType.FP8, "float", "tensor"), (KvType.INT8, "int", "attn_head")]
)
def test_what_compressed_tensors_tells_of_a_kv_cache(kind: KvType, type_: str, strategy: str) -> None:
    config = writer_of("compressed-tensors", scheme(4, 32), kind).config()
    assert config["kv_cache_scheme"] == {
        "num_bits": 8,
        "type": type_,
        "symmetric": True,
        "strategy": strategy,
        "group_size": None,
        "dynamic": False,
    }
