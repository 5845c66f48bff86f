"""What lies in a quantized cache after a step: bit for bit what the reference makes of the keys and values."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginesmith.plugins.attention.reference import cached
from enginesmith.quantization.scheme import KvType

SHAPES = [
    ("PerToken<Int8>", 5, 1, 17, 5, 48),
    ("PerToken<Fp8>", 4, 2, 64, 96, 16),
    ("PerHead<Int8>", 4, 2, 33, 20, 128),
    ("PerHead<Fp8>", 9, 3, 64, 64, 32),
]


def lying_in(runner, sequence) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Keys [T, Hk, D] and values [T, Hk, Dv] as they lie there, and the scales [2, T, Hk] that tokens have."""
    shape = runner.shape
    element = np.dtype(np.int8 if shape.kind is KvType.INT8 else ml_dtypes.float8_e4m3fn)
    parts = [("k", element, (shape.d, shape.block)), ("v", element, (shape.block, shape.dv))]
    if "PerToken" in shape.element:
        parts.append(("scales", np.dtype(np.float32), (2, shape.block)))
    head = np.dtype(parts)
    assert head.itemsize * shape.kv_heads == runner.library.block_bytes()
    blocks = runner.cache[sequence.blocks, : head.itemsize * shape.kv_heads].view(head)
    k, v = blocks["k"].transpose(0, 3, 1, 2), blocks["v"].transpose(0, 2, 1, 3)
    k, v = (x.reshape(-1, *x.shape[2:])[: sequence.done].astype(np.float32) for x in (k, v))
    if len(parts) == 2:
        return k, v, None
    scales = blocks["scales"].transpose(2, 0, 3, 1)
    return k, v, scales.reshape(2, -1, shape.kv_heads)[:, : sequence.done]


@pytest.mark.parametrize("wide", [False, True], ids=["8lanes", "16lanes"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@settings(max_examples=12)
@given(seed=st.integers(0, 999), size=st.sampled_from([0.0, 1e-30, 1e-3, 1.0, 1e30]), first=st.integers(1, 69))
def test_elements_and_scales_are_those_of_the_reference(
    make_runner, make_sequence, shape, wide: bool, seed: int, size: float, first: int
) -> None:
    runner = make_runner(shape, wide=wide)
    sequence = make_sequence(runner, 70, seed)
    sequence.k *= np.float32(size)
    sequence.v[seed % 70] *= np.float32(size)
    runner.step([(sequence, first)])
    runner.step([(sequence, 70 - first)])
    k, v, scales = lying_in(runner, sequence)
    unit = 1 if runner.shape.kind is KvType.INT8 else 256
    for index, (found, x) in enumerate(((k, sequence.k), (v, sequence.v))):
        elements, expected = cached(x, runner.shape.kind, runner.head_scales[index])
        np.testing.assert_array_equal(found, elements)
        if scales is not None:
            np.testing.assert_array_equal(scales[index], expected * unit)


@given(st.lists(st.floats(-500, 500, width=32), min_size=1, max_size=40))
def test_the_reference_rounds_to_e4m3_as_ml_dtypes_does(values: list[float]) -> None:
    x = np.array(values, np.float32).reshape(-1, 1, 1)
    for scaled in (x, x * np.float32(2**-12)):
        found, _ = cached(scaled, KvType.FP8, np.ones(1, np.float32))
        expected = np.clip(scaled, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", KvType)
def test_the_largest_magnitude_of_a_token_and_head_uses_all_of_the_range(kind: KvType) -> None:
    x = np.random.default_rng(0).standard_normal((9, 3, 16)).astype(np.float32)
    elements, scales = cached(x, kind)
    np.testing.assert_array_equal(np.abs(elements).max(axis=-1), 127 if kind is KvType.INT8 else 448)
    step = scales[..., None] / 2 if kind is KvType.INT8 else np.maximum(np.abs(x) / 16, scales[..., None] * 2**-10)
    assert (np.abs(elements * scales[..., None] - x) <= step * 1.001).all()
