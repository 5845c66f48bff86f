"""What a quantized checkpoint says of the KV cache, and the scales that it brings."""

from typing import Any

import numpy as np
import pytest
from quantized_models import random_grid, store_int8

from enginesmith.checkpoint.layouts.compressed_writer import CompressedTensorsWriter
from enginesmith.checkpoint.layouts.kv_cache import KvScheme
from enginesmith.checkpoint.layouts.registry import layout_of
from enginesmith.checkpoint.weights import bind_weights
from enginesmith.errors import CheckpointError
from enginesmith.quantization.scheme import KvType, LinearScheme, WeightScheme, WeightType

INT8 = {"num_bits": 8, "type": "int", "strategy": "tensor", "symmetric": True, "dynamic": False}
FP8 = {**INT8, "type": "float"}


def config(scheme: object) -> dict[str, Any]:
    weights = {"num_bits": 8, "type": "int", "strategy": "channel"}
    group = {"targets": ["Linear"], "weights": weights}
    return {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "config_groups": {"group_0": group},
        "kv_cache_scheme": scheme,
    }


def tensors(**scales: object) -> dict[str, np.ndarray]:
    """A layer "a.attn.o_proj" and whatever else the module "a.attn" has."""
    grid = random_grid(np.random.default_rng(0), 4, 8, 8, 0, symmetric=True, dtype=np.float32)
    stored = {f"attn.o_proj.{suffix}": part for suffix, part in store_int8(grid).items()}
    return stored | {f"attn.{name}": np.array(value, np.float32) for name, value in scales.items()}


def bound(checkpoint, name: str = "a.attn.o_proj.weight", base_prefix: str = "") -> Any:
    return bind_weights(checkpoint, layout_of(checkpoint), {name: (4, 8)}, base_prefix=base_prefix)


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        (None, None),
        (INT8, KvScheme(KvType.INT8, static=True)),
        (FP8, KvScheme(KvType.FP8, static=True)),
        ({**FP8, "strategy": "attn_head"}, KvScheme(KvType.FP8, static=True)),
        ({**INT8, "strategy": "token", "dynamic": True}, KvScheme(KvType.INT8, static=False)),
    ],
)
def test_schemes(open_stored, scheme: object, expected: KvScheme | None) -> None:
    layout = layout_of(open_stored(tensors(), config(scheme)))
    assert layout is not None
    assert layout.kv_cache == expected


@pytest.mark.parametrize("kind", KvType)
def test_what_the_writer_writes_is_read(open_stored, kind: KvType) -> None:
    writer = CompressedTensorsWriter(LinearScheme(WeightScheme(WeightType.INT8)), kind)
    layout = layout_of(open_stored(tensors(), writer.config()))
    assert layout is not None
    assert layout.kv_cache is not None
    assert layout.kv_cache.type is kind


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"symmetric": False}, "static int of 8 bits by tensor with zero points"),
        ({"strategy": "channel"}, "by channel"),
        ({"strategy": "group", "group_size": 32}, "by group"),
        ({"num_bits": 4}, "of 4 bits"),
        ({"strategy": "token"}, "static int of 8 bits by token"),
    ],
)
def test_schemes_that_no_cache_has_are_named(open_stored, change: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=f"kv_cache_scheme asks for .*{named}"):
        layout_of(open_stored(tensors(), config(INT8 | change)))


@pytest.mark.parametrize("shape", [(), (1,), (2,), (2, 1, 1)])
def test_scales_are_found_by_attention_module(open_stored, shape: tuple[int, ...]) -> None:
    key, value = (np.linspace(low, low + 1, int(np.prod(shape))).reshape(shape) for low in (0.25, 0.5))
    stored = tensors(k_scale=key, v_scale=value, q_scale=1.0, k_zero_point=np.zeros(shape))
    scales = bound(open_stored(stored, config(FP8))).kv_scales
    assert list(scales) == ["a.attn"]
    assert scales["a.attn"].type is KvType.FP8
    np.testing.assert_array_equal(scales["a.attn"].key, key.reshape(-1).astype(np.float32))
    np.testing.assert_array_equal(scales["a.attn"].value, value.reshape(-1).astype(np.float32))


def test_a_headless_models_scales_go_by_the_models_names(open_stored) -> None:
    checkpoint = open_stored(tensors(k_scale=0.5, v_scale=0.5), config(INT8))
    assert list(bound(checkpoint, "model.a.attn.o_proj.weight", "model").kv_scales) == ["model.a.attn"]


def test_a_checkpoint_need_not_have_scales(open_stored) -> None:
    stored = tensors(k_scale=0.5, v_scale=0.5)
    assert not bound(open_stored(stored, config(None))).kv_scales
    assert not bound(open_stored(tensors(), config(INT8))).kv_scales
    assert not bound(open_stored(stored, config({**INT8, "dynamic": True}))).kv_scales


@pytest.mark.parametrize(
    ("scales", "named"),
    [
        ({"k_scale": 0.5}, r"a\.attn\.v_scale: missing"),
        ({"k_scale": [0.5, 0.0], "v_scale": 1.0}, r"a\.attn\.k_scale: scales should be positive .* \[0\.5, 0\.0\]"),
        ({"k_scale": 0.5, "v_scale": np.nan}, r"a\.attn\.v_scale: scales should be positive"),
        (
            {"k_scale": 0.5, "v_scale": 0.5, "v_zero_point": 3},
            r"a\.attn\.v_zero_point: the KV cache has no zero points",
        ),
    ],
)
def test_scales_that_cannot_be_are_named(open_stored, scales: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        bound(open_stored(tensors(**scales), config(INT8)))
