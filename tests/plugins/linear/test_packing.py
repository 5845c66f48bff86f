"""Packing: sizes, streaming, and what each layout holds."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginesmith.errors import BuildError
from enginesmith.plugins.cpu.isa import Isa
from enginesmith.plugins.linear.cpu import packing
from enginesmith.plugins.linear.cpu.packing import LinearLayout
from enginesmith.plugins.linear.cpu.panels import PANEL, round_to_bf16
from enginesmith.quantization.quantized import QuantizedWeight
from enginesmith.quantization.scheme import WeightScheme, WeightType

schemes = st.one_of(
    st.sampled_from([WeightScheme(WeightType.FP32), WeightScheme(WeightType.BF16)]),
    st.builds(
        WeightScheme, st.sampled_from([WeightType.INT8, WeightType.INT4]), st.sampled_from([0, 8, 24, 32, 64, 96, 128])
    ),
    st.builds(WeightScheme, st.just(WeightType.FP8), st.sampled_from([0, 32, 96, 128])),
    st.builds(WeightScheme, st.just(WeightType.INT4), st.sampled_from([8, 24, 32, 64, 96]), st.just(False)),
)


def rows_of(n, k, scheme, seed=0):
    rng = np.random.default_rng(seed)
    if scheme.type in (WeightType.FP32, WeightType.BF16):
        weight = rng.standard_normal((n, k)).astype(np.float32)
        return lambda first, last: weight[first:last]
    q = rng.integers(-8, 7, (n, k), dtype=np.int8, endpoint=True)
    if scheme.type is WeightType.FP8:
        q = q.astype(ml_dtypes.float8_e4m3fn)
    scale = rng.uniform(0.01, 1, (n, scheme.groups(k))).astype(np.float16).astype(np.float32)
    zero = None if scheme.symmetric else rng.uniform(-8, 8, scale.shape).astype(np.float16).astype(np.float32)
    return QuantizedWeight(q, scale, zero).rows


@settings(max_examples=60)
@given(schemes, st.sampled_from(list(Isa)), st.integers(1, 140), st.integers(1, 200))
def test_streaming_in_steps_gives_the_same_bytes(scheme, isa, n, k):
    layout, rows = LinearLayout(n, k, scheme, isa), rows_of(n, k, scheme)
    whole, pieces = np.full(layout.nbytes, 0x55, np.uint8), np.full(layout.nbytes, 0xAA, np.uint8)
    layout.pack(rows, whole)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_STEP_BYTES", 1)
        layout.pack(rows, pieces)
    np.testing.assert_array_equal(whole, pieces)
    assert layout.nbytes % 64 == 0


@settings(max_examples=30)
@given(schemes, st.sampled_from(list(Isa)), st.integers(1, 100), st.integers(1, 100))
def test_gated_layout_interleaves_the_panels_of_two_layers(scheme, isa, n, k):
    gate, up = rows_of(n, k, scheme, 1), rows_of(n, k, scheme, 2)
    single, gated = LinearLayout(n, k, scheme, isa), LinearLayout(n, k, scheme, isa, gated=True)
    parts = [np.empty(single.nbytes, np.uint8) for _ in range(2)]
    single.pack(gate, parts[0])
    single.pack(up, parts[1])
    both = np.empty(gated.nbytes, np.uint8)
    gated.pack(gate, both, up)
    panels = [part.reshape(-1, single.panel_bytes) for part in parts]
    np.testing.assert_array_equal(both.reshape(len(panels[0]), 2, -1), np.stack(panels, axis=1))


def test_int4_sizes_are_four_bits_and_a_half_precision_scale_a_group():
    layout = LinearLayout(576, 1536, WeightScheme(WeightType.INT4, 64), Isa.AVX2)
    assert layout.nbytes == 576 * 1536 // 2 + 576 * (1536 // 64) * 2


def test_zeros_follow_the_scales_of_their_group():
    scheme = WeightScheme(WeightType.INT4, 32, symmetric=False)
    layout = LinearLayout(PANEL, 64, scheme, Isa.AVX2)
    assert layout.nbytes == 32 * 64 // 2 + 32 * 2 * 4
    scale, zero = (np.arange(64, dtype=np.float32).reshape(PANEL, 2) + start for start in (100, 500))
    out = np.empty(layout.nbytes, np.uint8)
    layout.pack(QuantizedWeight(np.zeros((PANEL, 64), np.int8), scale, zero).rows, out)
    ends = out.reshape(2, -1)[:, -128:].copy().view(np.float16).reshape(2, 2, PANEL)  # [group, scale or zero, output]
    np.testing.assert_array_equal(ends, np.stack([scale.T, zero.T], axis=1))


def test_zeros_must_be_there_if_and_only_if_the_scheme_has_them():
    whole = QuantizedWeight(np.zeros((32, 32), np.int8), np.ones((32, 1), np.float32), np.ones((32, 1), np.float32))
    for weight, symmetric in ((whole, True), (QuantizedWeight(whole.q, whole.scale), False)):
        layout = LinearLayout(32, 32, WeightScheme(WeightType.INT4, 32, symmetric), Isa.AVX2)
        with pytest.raises(ValueError, match="zeros"):
            layout.pack(weight.rows, np.empty(layout.nbytes, np.uint8))


@pytest.mark.parametrize("isa", list(Isa))
def test_fp8_panels_hold_the_bytes_and_then_scales_times_256(isa):
    """Padding along K is zeros."""
    bits = np.arange(PANEL * 40, dtype=np.uint32).reshape(PANEL, 40).astype(np.uint8)
    scale = np.arange(PANEL * 2, dtype=np.float32).reshape(PANEL, 2)
    layout = LinearLayout(PANEL, 40, WeightScheme(WeightType.FP8, 32), isa)
    assert layout.nbytes == PANEL * (64 + 2 * 4)
    out = np.empty(layout.nbytes, np.uint8)
    layout.pack(QuantizedWeight(bits.view(ml_dtypes.float8_e4m3fn), scale).rows, out)
    found = np.zeros((PANEL, 64), np.uint8)
    for at, byte in enumerate(out[: PANEL * 64]):
        quad, half, place = at // 128, at // 64 % 2, at % 64
        output, k = place % 16, place // 16
        if isa is not Isa.AVX2:
            output, k = place // 16 * 4 + place // 2 % 4, place // 8 % 2 * 2 + place % 2
        found[16 * half + output, 4 * quad + k] = byte
    np.testing.assert_array_equal(found[:, :40], bits)
    assert not found[:, 40:].any()
    np.testing.assert_array_equal(out[PANEL * 64 :].view(np.float32).reshape(2, PANEL), scale.T * 256)


def test_fp32_panel_order():
    weight = np.arange(PANEL * 3, dtype=np.float32).reshape(PANEL, 3)
    layout = LinearLayout(PANEL, 3, WeightScheme(WeightType.FP32), Isa.AVX512)
    out = np.empty(layout.nbytes, np.uint8)
    layout.pack(lambda first, last: weight[first:last], out)
    halves = out.view(np.float32).reshape(2, 3, 16)
    np.testing.assert_array_equal(halves[1, 2], weight[16:, 2])


def test_bf16_rounds_to_nearest_even_and_keeps_nan_and_infinity():
    values = np.array([1.0, 1.00390625, 1.01171875, -np.inf, np.nan, 3.4e38], np.float32)
    wide = (round_to_bf16(values).astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(wide, np.array([1.0, 1.0, 1.015625, -np.inf, np.nan, np.inf], np.float32))


def test_wrong_arguments_are_refused():
    layout = LinearLayout(32, 8, WeightScheme(WeightType.FP32), Isa.AVX2)
    rows = rows_of(32, 8, layout.scheme)
    with pytest.raises(ValueError, match="1024"):
        layout.pack(rows, np.empty(100, np.uint8))
    with pytest.raises(ValueError, match="gated"):
        layout.pack(rows, np.empty(layout.nbytes, np.uint8), rows)
    with pytest.raises(ValueError, match="fp32 takes float32 rows"):
        layout.pack(rows_of(32, 8, WeightScheme(WeightType.INT8)), np.empty(layout.nbytes, np.uint8))
    integers = LinearLayout(32, 8, WeightScheme(WeightType.INT8), Isa.AVX2)
    with pytest.raises(ValueError, match="int8 takes quantized rows"):
        integers.pack(rows, np.empty(integers.nbytes, np.uint8))
    with pytest.raises(BuildError, match="a multiple of 32 inputs, not for groups of 24"):
        LinearLayout(32, 48, WeightScheme(WeightType.FP8, 24), Isa.AVX2)
    with pytest.raises(BuildError, match="positive"):
        LinearLayout(0, 8, layout.scheme, Isa.AVX2)
