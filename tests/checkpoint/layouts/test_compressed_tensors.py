"""compressed-tensors: integers in words and in bytes, FP8, and how its groups of modules are told apart."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quantized_models import FP8, Grid, fp8_values, random_grid, store_int8, store_packed

from enginesmith.checkpoint.layouts.registry import layout_of
from enginesmith.checkpoint.layouts.stored import StoredWeight
from enginesmith.checkpoint.weights import bind_weights
from enginesmith.errors import CheckpointError


def config(form: str, targets: tuple[str, ...] = ("Linear",), **weights: object) -> dict:
    group = {"targets": list(targets), "weights": {"type": "int", **weights}, "input_activations": None}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": group}, "ignore": []}


def stored(checkpoint, n: int, k: int) -> StoredWeight:
    return bind_weights(checkpoint, layout_of(checkpoint), {"a.weight": (n, k)}).stored["a.weight"]


@settings(max_examples=40)
@given(
    n=st.integers(1, 20),
    k=st.integers(1, 70),
    bits=st.sampled_from([4, 8]),
    group=st.sampled_from([0, 4, 16, 32]),
    symmetric=st.booleans(),
    seed=st.integers(0, 99),
    first=st.integers(0, 19),
)
def test_packed_integers_and_values_come_back(
    open_stored, n: int, k: int, bits: int, group: int, symmetric: bool, seed: int, first: int
) -> None:
    first %= n
    grid = random_grid(np.random.default_rng(seed), n, k, bits, group, symmetric=symmetric)
    strategy = {"strategy": "group", "group_size": group} if group else {"strategy": "channel", "group_size": None}
    described = config("pack-quantized", num_bits=bits, symmetric=symmetric, **strategy)
    weight = stored(open_stored(store_packed(grid, bits, symmetric=symmetric), described), n, k)
    np.testing.assert_array_equal(weight.dequantize(), grid.values())
    np.testing.assert_array_equal(weight[first:n, 0 : k // 2], grid.values()[first:, : k // 2])
    if weight.scheme is None:
        assert bits == 8
        assert not symmetric
        return
    rows = weight.rows(first, n)
    np.testing.assert_array_equal(rows.q, grid.q[first:] - (1 << (bits - 1)))
    np.testing.assert_array_equal(rows.dequantize(weight.scheme.group_size), grid.values()[first:])


def test_zero_points_that_are_not_packed(open_stored) -> None:
    grid = random_grid(np.random.default_rng(0), 9, 32, 4, 16, symmetric=False)
    tensors = store_packed(grid, 4, symmetric=False) | {"weight_zero_point": (grid.zero - 8).astype(np.int8)}
    described = config("pack-quantized", num_bits=4, strategy="group", group_size=16, symmetric=False)
    np.testing.assert_array_equal(stored(open_stored(tensors, described), 9, 32).dequantize(), grid.values())


@pytest.mark.parametrize("shape", [(9, 1), (9,), (1,), ()])
def test_int8_by_channel_or_tensor(open_stored, shape: tuple[int, ...]) -> None:
    grid = random_grid(np.random.default_rng(0), 9, 33, 8, 0, symmetric=True, dtype=np.float32)
    if shape != (9, 1) and shape != (9,):
        grid = Grid(grid.q, grid.zero, np.full_like(grid.scale, grid.scale[0, 0]), grid.group)
    strategy = "channel" if 9 in shape else "tensor"
    tensors = store_int8(grid)
    tensors["weight_scale"] = tensors["weight_scale"].reshape(-1)[: int(np.prod(shape))].reshape(shape)
    tensors |= {"input_scale": np.ones(1, np.float32)}
    weight = stored(open_stored(tensors, config("int-quantized", num_bits=8, strategy=strategy)), 9, 33)
    assert str(weight.scheme) == "int8"
    np.testing.assert_array_equal(weight.rows(2, 9).q, grid.q[2:] - 128)
    np.testing.assert_array_equal(weight.dequantize(), grid.values())


@pytest.mark.parametrize(("strategy", "block"), [("tensor", (9, 33)), ("channel", (1, 33)), ("block", (4, 16))])
def test_fp8(open_stored, strategy: str, block: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(0, 50, (9, 33)).astype(FP8)
    scale = rng.uniform(1e-4, 1e-2, (-(-9 // block[0]), -(-33 // block[1]))).astype(np.float32)
    tensors = {"weight": weight, "weight_scale": scale.reshape(-1) if strategy == "tensor" else scale}
    shape = list(block) if strategy == "block" else None
    described = config("float-quantized", type="float", num_bits=8, strategy=strategy, block_structure=shape)
    found = stored(open_stored(tensors, described), 9, 33)
    if strategy == "block":
        assert found.scheme is None
        assert "FP8 in groups of 16 inputs" in found.reason
    else:
        assert str(found.scheme) == "fp8"
        np.testing.assert_array_equal(found.rows(3, 8).q.view(np.uint8), weight[3:8].view(np.uint8))
        np.testing.assert_array_equal(found.rows(3, 8).scale, np.broadcast_to(scale, (9, 1))[3:8])
    np.testing.assert_array_equal(found.dequantize(3, 8), fp8_values(weight, scale, block)[3:8])


INPUTS = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}


def fp8_with_inputs(open_stored, inputs: dict, **tensors: np.ndarray) -> StoredWeight:
    described = config("float-quantized", type="float", num_bits=8, strategy="tensor")
    described["config_groups"]["group_0"]["input_activations"] = inputs
    whole = {"weight": np.ones((4, 32)).astype(FP8), "weight_scale": np.ones(1, np.float32), **tensors}
    return stored(open_stored(whole, described), 4, 32)


@pytest.mark.parametrize(
    ("changes", "activation"),
    [
        ({}, "static"),
        ({"dynamic": True, "strategy": "token"}, "dynamic"),
        ({"type": "int"}, "none"),
        ({"strategy": "group"}, "none"),
        ({"symmetric": False}, "none"),
    ],
)
def test_inputs_are_rounded_as_the_checkpoint_says(open_stored, changes: dict, activation: str) -> None:
    found = fp8_with_inputs(open_stored, INPUTS | changes, input_scale=np.full(1, 0.25, np.float16))
    assert found.activation == activation
    assert found.input_scale == (0.25 if activation == "static" else None)


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_a_scale_of_inputs_that_cannot_be_is_named(open_stored, scale: float) -> None:
    with pytest.raises(CheckpointError, match=r"a\.input_scale: a scale of inputs must be positive and finite"):
        fp8_with_inputs(open_stored, INPUTS, input_scale=np.full(1, scale, np.float32))
    with pytest.raises(CheckpointError, match=r"a\.input_scale: missing"):
        fp8_with_inputs(open_stored, INPUTS)


def test_groups_of_modules_by_name(open_stored) -> None:
    four = random_grid(np.random.default_rng(0), 8, 32, 4, 16, symmetric=True)
    eight = random_grid(np.random.default_rng(0), 8, 32, 8, 0, symmetric=True)
    described = config("mixed-precision")
    described["config_groups"] = {
        "group_0": {
            "targets": ["Linear"],
            "format": "pack-quantized",
            "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 16, "symmetric": True},
        },
        "group_1": {
            "targets": ["re:.*down_proj"],
            "format": "int-quantized",
            "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True},
        },
    }
    tensors = {f"up_proj.{suffix}": tensor for suffix, tensor in store_packed(four, 4, symmetric=True).items()}
    tensors |= {f"down_proj.{suffix}": tensor for suffix, tensor in store_int8(eight).items()}
    checkpoint = open_stored(tensors, described)
    shapes = {"a.up_proj.weight": (8, 32), "a.down_proj.weight": (8, 32)}
    weights = bind_weights(checkpoint, layout_of(checkpoint), shapes).stored
    assert [str(weights[name].scheme) for name in shapes] == ["int4-g16", "int8"]
    for name, grid in zip(shapes, (four, eight), strict=True):
        np.testing.assert_array_equal(weights[name].dequantize(), grid.values())


def test_act_order_gives_values_and_no_scheme(open_stored) -> None:
    rng = np.random.default_rng(1)
    grid = random_grid(rng, 8, 32, 4, 8, symmetric=False)
    grid = Grid(grid.q, grid.zero, grid.scale, rng.permutation(grid.group))
    tensors = store_packed(grid, 4, symmetric=False) | {"weight_g_idx": grid.group.astype(np.int32)}
    described = config("pack-quantized", num_bits=4, strategy="group", group_size=8, symmetric=False)
    weight = stored(open_stored(tensors, described), 8, 32)
    assert weight.scheme is None
    np.testing.assert_array_equal(weight.dequantize(), grid.values())


@pytest.mark.parametrize(
    ("form", "weights", "packing"),
    [
        ("pack-quantized", {"num_bits": 3, "strategy": "group", "group_size": 16}, '"pack-quantized": int of 3 bits'),
        ("nvfp4-pack-quantized", {"type": "float", "num_bits": 4, "strategy": "tensor_group"}, "float of 4 bits"),
        ("marlin-24", {"num_bits": 4, "strategy": "group", "group_size": 16}, '"marlin-24"'),
        ("float-quantized", {"type": "float", "num_bits": 8, "strategy": "group", "group_size": 16}, "by group"),
    ],
)
def test_other_packings_are_named(open_stored, form: str, weights: dict, packing: str) -> None:
    with pytest.raises(CheckpointError, match=rf"{packing}.* \(as in a\.weight_packed, int32 \[2, 3\]\)"):
        layout_of(open_stored({"weight_packed": np.zeros((2, 3), np.int32)}, config(form, **weights)))


PRESETS = {
    "w4a16": ("pack-quantized", 4, 128, "int4-g128", "none"),
    "W4A8": ("pack-quantized", 4, 128, "int4-g128", "none"),  # what int4 kernels do with inputs is theirs to say
    "W8A16": ("pack-quantized", 8, 0, "int8", "none"),
    "W8A8": ("int-quantized", 8, 0, "int8", "dynamic"),
}


@pytest.mark.parametrize("name", PRESETS)
def test_presets(open_stored, name: str) -> None:
    form, bits, group, scheme, activation = PRESETS[name]
    grid = random_grid(np.random.default_rng(0), 8, 256, bits, group, symmetric=True)
    tensors = store_packed(grid, bits, symmetric=True) if form == "pack-quantized" else store_int8(grid)
    weight = stored(open_stored(tensors, config(form) | {"config_groups": {name: ["Linear"]}}), 8, 256)
    assert (str(weight.scheme), str(weight.activation)) == (scheme, activation)
    np.testing.assert_array_equal(weight.dequantize(), grid.values())


def test_w8a16_in_groups(open_stored) -> None:
    grid = random_grid(np.random.default_rng(0), 8, 256, 8, 128, symmetric=True)
    described = config("pack-quantized") | {"config_groups": {"W8A16": ["Linear"]}}
    weight = stored(open_stored(store_packed(grid, 8, symmetric=True), described), 8, 256)
    assert str(weight.scheme) == "int8-g128"
    np.testing.assert_array_equal(weight.dequantize(), grid.values())


@pytest.mark.parametrize(
    ("name", "shape", "block", "activation"),
    [
        ("FP8", (1,), (9, 256), "static"),
        ("FP8_DYNAMIC", (9, 1), (1, 256), "dynamic"),
        ("FP8_BLOCK", (1, 2), (128, 128), "dynamic"),
    ],
)
def test_fp8_presets(open_stored, name: str, shape: tuple[int, ...], block: tuple[int, int], activation: str) -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(0, 50, (9, 256)).astype(FP8)
    scale = rng.uniform(1e-4, 1e-2, shape).astype(np.float32)
    tensors = {"weight": weight, "weight_scale": scale, "input_scale": np.full(1, 0.5, np.float32)}
    found = stored(open_stored(tensors, config("float-quantized") | {"config_groups": {name: ["Linear"]}}), 9, 256)
    assert str(found.activation) == activation
    values = fp8_values(weight, scale.reshape(-1, scale.shape[-1]), block)
    np.testing.assert_array_equal(found.dequantize(), values)


def test_transforms_are_not_ignored(open_stored) -> None:
    described = config("int-quantized", num_bits=8, strategy="channel")
    tensors = store_int8(random_grid(np.random.default_rng(0), 8, 32, 8, 0, symmetric=True))
    for harmless in ({}, {"config_groups": {}}):
        assert layout_of(open_stored(tensors, described | {"transform_config": harmless}))
    rotated = {"config_groups": {"R1": {"type": "hadamard"}}}
    with pytest.raises(CheckpointError, match="compressed-tensors with transforms of inputs"):
        layout_of(open_stored(tensors, described | {"transform_config": rotated}))


@pytest.mark.parametrize("groups", [None, {}, {"W9A8": ["Linear"]}, {"W8A8": "Linear"}])
def test_groups_that_say_nothing(open_stored, groups: object) -> None:
    described = config("int-quantized") | {"config_groups": groups}
    with pytest.raises(CheckpointError, match="config_groups should name groups of modules"):
        layout_of(open_stored({"weight": np.zeros((2, 3), np.int8)}, described))


def test_two_groups_for_whole_classes(open_stored) -> None:
    described = config("int-quantized", num_bits=8, strategy="channel")
    described["config_groups"]["group_1"] = config("int-quantized", num_bits=4, strategy="channel")["config_groups"][
        "group_0"
    ]
    with pytest.raises(CheckpointError, match="2 groups for whole classes"):
        layout_of(open_stored({"weight": np.zeros((2, 3), np.int8)}, described))
