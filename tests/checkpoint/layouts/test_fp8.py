"""FP8 with a scale for each block, as DeepSeek stores it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quantized_models import FP8, fp8_values

from enginesmith.checkpoint.layouts.registry import layout_of
from enginesmith.checkpoint.weights import bind_weights
from enginesmith.errors import CheckpointError

ALL_VALUES = np.arange(256, dtype=np.uint8).view(FP8)


@settings(max_examples=25)
@given(
    shape=st.tuples(st.integers(1, 20), st.integers(1, 40)),
    block=st.tuples(st.integers(1, 8), st.integers(1, 16)),
    seed=st.integers(0, 99),
    first=st.integers(0, 19),
)
def test_values_come_back(open_stored, shape: tuple[int, int], block: tuple[int, int], seed: int, first: int) -> None:
    rng = np.random.default_rng(seed)
    finite = ALL_VALUES[np.isfinite(ALL_VALUES.astype(np.float32))]
    weight = rng.choice(finite.view(np.uint8), shape).view(FP8)
    scale = rng.uniform(1e-5, 1, (-(-shape[0] // block[0]), -(-shape[1] // block[1]))).astype(np.float32)
    config = {"quant_method": "fp8", "weight_block_size": list(block), "fmt": "e4m3"}
    checkpoint = open_stored({"weight": weight, "weight_scale_inv": scale}, config)
    found = bind_weights(checkpoint, layout_of(checkpoint), {"a.weight": shape}).stored["a.weight"]
    expected = fp8_values(weight, scale, block)
    np.testing.assert_array_equal(found.dequantize(), expected)
    np.testing.assert_array_equal(found[first % shape[0] : shape[0], 0:3], expected[first % shape[0] :, 0:3])


def test_one_scale(open_stored) -> None:
    weight = np.array([[1.0, -448.0], [0.5, 0.0]]).astype(FP8)
    checkpoint = open_stored({"weight": weight, "weight_scale_inv": np.float32(0.1)}, {"quant_method": "fp8"})
    found = bind_weights(checkpoint, layout_of(checkpoint), {"a.weight": (2, 2)}).stored["a.weight"]
    np.testing.assert_array_equal(found.dequantize(), weight.astype(np.float32) * np.float32(0.1))


def test_blocks_become_groups_of_each_row(open_stored) -> None:
    rng = np.random.default_rng(0)
    weight, scale = rng.normal(0, 9, (5, 70)).astype(FP8), rng.uniform(0.1, 1, (3, 3)).astype(np.float32)
    config = {"quant_method": "fp8", "weight_block_size": [2, 32], "activation_scheme": "static"}
    tensors = {"weight": weight, "weight_scale_inv": scale, "activation_scale": np.float32(0.5)}
    checkpoint = open_stored(tensors, config)
    found = bind_weights(checkpoint, layout_of(checkpoint), {"a.weight": (5, 70)}).stored["a.weight"]
    assert (str(found.scheme), found.activation, found.input_scale) == ("fp8-g32", "static", 0.5)
    np.testing.assert_array_equal(found.rows(1, 5).scale, scale[[0, 1, 1, 2]])
    np.testing.assert_array_equal(found.rows(1, 5).q.view(np.uint8), weight[1:].view(np.uint8))


def test_wrong_shapes_are_listed(open_stored) -> None:
    tensors = {"weight": np.zeros((4, 8), np.float32), "weight_scale_inv": np.zeros((2, 2), np.float32)}
    checkpoint = open_stored(tensors, {"quant_method": "fp8", "weight_block_size": [4, 4]})
    with pytest.raises(CheckpointError) as caught:
        bind_weights(checkpoint, layout_of(checkpoint), {"a.weight": (4, 8)})
    assert "a.weight: expected float8_e4m3fn, found float32" in str(caught.value)
    assert "a.weight_scale_inv: expected [1, 2], found [2, 2]" in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"fmt": "e5m2"},
        {"weight_block_size": [128]},
        {"weight_block_size": [0, 128]},
        {"activation_scheme": "learned"},
    ],
)
def test_other_packings_are_named(open_stored, changes: dict) -> None:
    checkpoint = open_stored({"weight_scale_inv": np.zeros((2, 3), np.float32)}, {"quant_method": "fp8"} | changes)
    with pytest.raises(CheckpointError, match=r"packed as FP8 .* \(as in a\.weight_scale_inv, float32 \[2, 3\]\)"):
        layout_of(checkpoint)


@pytest.mark.parametrize("activation", ["static", "dynamic"])
def test_the_names_of_auto_fp8(open_stored, activation: str) -> None:
    weight = np.array([[1.0, -448.0], [0.5, 0.0]]).astype(FP8)
    tensors = {"weight": weight, "weight_scale": np.full(1, 0.1, np.float32), "k_scale": np.float32(2)}
    tensors |= {"input_scale": np.full(1, 0.25, np.float32)} if activation == "static" else {}
    checkpoint = open_stored(tensors, {"quant_method": "fp8", "activation_scheme": activation})
    found = bind_weights(checkpoint, layout_of(checkpoint), {"a.weight": (2, 2)}).stored["a.weight"]
    np.testing.assert_array_equal(found.dequantize(), weight.astype(np.float32) * np.float32(0.1))
    assert (str(found.activation), found.input_scale) == (activation, 0.25 if activation == "static" else None)


def test_static_inputs_need_their_scale(open_stored) -> None:
    tensors = {"weight": np.zeros((2, 2), FP8), "weight_scale": np.full(1, 0.1, np.float32)}
    checkpoint = open_stored(tensors, {"quant_method": "fp8", "activation_scheme": "static"})
    with pytest.raises(CheckpointError, match=r"a\.input_scale: missing"):
        bind_weights(checkpoint, layout_of(checkpoint), {"a.weight": (2, 2)})


@pytest.mark.parametrize("flat", [False, True])
def test_fbgemm(open_stored, flat: bool) -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(0, 50, (9, 33)).astype(FP8)
    scale = rng.uniform(1e-4, 1e-2, (9, 1)).astype(np.float32)
    tensors = {
        "weight": weight,
        "weight_scale": scale[:, 0] if flat else scale,
        "input_scale_ub": np.full(1, 1200, np.float32),
    }
    checkpoint = open_stored(tensors, {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0})
    found = bind_weights(checkpoint, layout_of(checkpoint), {"a.weight": (9, 33)}).stored["a.weight"]
    np.testing.assert_array_equal(found.dequantize(), fp8_values(weight, scale, (1, 33)))
    assert (str(found.scheme), str(found.activation)) == ("fp8", "dynamic")
