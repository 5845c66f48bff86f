"""What config.json and the files beside it say of a quantization: read from either, and compared."""

import json
from typing import Any

import numpy as np
import pytest
from quantized_models import random_grid, store_awq, store_gptq, store_int8, store_packed

from enginesmith.checkpoint.layouts.registry import layout_of
from enginesmith.checkpoint.weights import bind_weights
from enginesmith.errors import CheckpointError

GRID = random_grid(np.random.default_rng(0), 8, 32, 4, 16, symmetric=False)
SYMMETRIC = random_grid(np.random.default_rng(0), 8, 32, 4, 16, symmetric=True)
GPTQ: dict[str, Any] = {"bits": 4, "group_size": 16, "sym": True, "desc_act": False}
AUTOAWQ = {"zero_point": True, "q_group_size": 16, "w_bit": 4, "version": "GEMM"}


def with_files(open_stored, tensors, config, files: dict[str, Any]):
    checkpoint = open_stored(tensors, config)
    for name, content in files.items():
        (checkpoint.path / name).write_text(json.dumps(content))
    return checkpoint


def test_autogptq_s_own_file(open_stored) -> None:
    checkpoint = with_files(open_stored, store_gptq(SYMMETRIC, 4, 1), {}, {"quantize_config.json": GPTQ})
    weights = bind_weights(checkpoint, layout_of(checkpoint), {"a.weight": (8, 32)})
    np.testing.assert_array_equal(weights.values("a.weight"), SYMMETRIC.values())


def test_autoawq_s_own_file(open_stored) -> None:
    checkpoint = with_files(open_stored, store_awq(GRID), {}, {"quant_config.json": AUTOAWQ})
    weights = bind_weights(checkpoint, layout_of(checkpoint), {"a.weight": (8, 32)})
    np.testing.assert_array_equal(weights.values("a.weight"), GRID.values())


def test_a_file_fills_in_what_config_leaves_out(open_stored) -> None:
    beside = {"quantize_config.json": GPTQ | {"checkpoint_format": "gptq_v2"}}
    checkpoint = with_files(open_stored, store_gptq(SYMMETRIC, 4, 0), {"quant_method": "gptq", **GPTQ}, beside)
    layout = layout_of(checkpoint)
    assert layout is not None
    assert layout.title.endswith("gptq_v2 zeros")


def test_a_file_left_beside_plain_weights_says_nothing(open_stored) -> None:
    plain = {"weight": np.zeros((2, 2), np.float32)}
    assert layout_of(with_files(open_stored, plain, {}, {"quantize_config.json": GPTQ})) is None


@pytest.mark.parametrize(
    ("config", "beside", "fact"),
    [
        (GPTQ, GPTQ | {"bits": 8}, "bits"),
        (GPTQ, GPTQ | {"group_size": 128}, "group_size"),
        (GPTQ, GPTQ | {"sym": False}, "sym"),
        (GPTQ, GPTQ | {"desc_act": True}, "desc_act"),
        (GPTQ | {"checkpoint_format": "gptq"}, GPTQ | {"checkpoint_format": "gptq_v2"}, "checkpoint_format"),
        (GPTQ, GPTQ | {"quant_method": "awq"}, "quant_method"),
    ],
)
def test_files_that_disagree(open_stored, config: dict, beside: dict, fact: str) -> None:
    stated = {"quant_method": "gptq", **config}
    checkpoint = with_files(open_stored, store_gptq(SYMMETRIC, 4, 1), stated, {"quantize_config.json": beside})
    message = rf"contradicts itself: of {fact}, config\.json \(quantization_config\) says .*, quantize_config\.json "
    with pytest.raises(CheckpointError, match=message):
        layout_of(checkpoint)


@pytest.mark.parametrize(
    ("changes", "fact"),
    [({"w_bit": 8}, "bits"), ({"q_group_size": 64}, "group_size"), ({"zero_point": False}, "zero_point"),
     ({"version": "GEMV"}, "version")],
)  # fmt: skip
def test_awq_files_that_disagree(open_stored, changes: dict, fact: str) -> None:
    stated = {"quant_method": "awq", "bits": 4, "group_size": 16, "version": "gemm", "zero_point": True}
    checkpoint = with_files(open_stored, store_awq(GRID), stated, {"quant_config.json": AUTOAWQ | changes})
    with pytest.raises(CheckpointError, match=f"contradicts itself: of {fact}, "):
        layout_of(checkpoint)


def test_the_same_said_otherwise_agrees(open_stored) -> None:
    stated = {"quant_method": "awq", "bits": 4, "group_size": 16, "version": "gemm", "zero_point": True}
    assert layout_of(with_files(open_stored, store_awq(GRID), stated, {"quant_config.json": AUTOAWQ})) is not None


def bound(checkpoint):
    return bind_weights(checkpoint, layout_of(checkpoint), {"a.weight": (8, 32)})


def compressed(form: str, **weights: object) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": {"type": "int", **weights}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": group}}


PACKED = compressed("pack-quantized", num_bits=4, strategy="group", group_size=16, symmetric=True)


def test_tensors_that_disagree_with_what_is_said(open_stored) -> None:
    stated = {"quant_method": "awq", "bits": 4, "group_size": 16, "version": "gemm", "zero_point": False}
    with pytest.raises(CheckpointError, match=r"a\.qzeros: zero points are not all 8, .* zero_point: false"):
        bound(open_stored(store_awq(GRID), stated))
    np.testing.assert_array_equal(
        bound(open_stored(store_awq(SYMMETRIC), stated)).values("a.weight"), SYMMETRIC.values()
    )
    with pytest.raises(CheckpointError, match=r"a\.weight_zero_point: zero points that are not 0, .* symmetric"):
        bound(open_stored(store_packed(GRID, 4, symmetric=False), PACKED))
    other = store_packed(SYMMETRIC, 4, symmetric=True) | {"weight_shape": np.array([8, 31])}
    with pytest.raises(CheckpointError, match=r"a\.weight_shape: says \[8, 31\], but .* \[8, 32\]"):
        bound(open_stored(other, PACKED))
    zeros = store_int8(random_grid(np.random.default_rng(0), 8, 32, 8, 0, symmetric=True))
    zeros["weight_zero_point"] = np.ones((8, 1), np.int8)
    with pytest.raises(CheckpointError, match="zero points that are not 0"):
        bound(open_stored(zeros, compressed("int-quantized", num_bits=8, strategy="channel", symmetric=True)))
