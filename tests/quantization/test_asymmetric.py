"""int4 with zero points: grids come back, searches never lose, and awkward groups stay finite."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginesmith.errors import BuildError
from enginesmith.quantization.rtn import quantize
from enginesmith.quantization.scheme import WeightScheme, WeightType


def zeros(group: int) -> WeightScheme:
    return WeightScheme(WeightType.INT4, group, symmetric=False)


def fp16(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float16).astype(np.float32)


def naive(group: np.ndarray) -> float:
    """The squared error of 16 even steps from a group's smallest weight to its largest, in float64."""
    step = (group.max() - group.min()) / 15
    return float(((np.rint((group - group.min()) / step) * step + group.min() - group) ** 2).sum()) if step else 0.0


@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 70)),
    group=st.sampled_from([1, 8, 20, 32, 64, 128]),
    seed=st.integers(0, 99),
    spread=st.sampled_from([1e-3, 0.02, 1.0, 300.0]),
    shift=st.sampled_from([0.0, 1.0, -3.0]),
)
def test_no_worse_than_the_plain_grid(
    shape: tuple[int, int], group: int, seed: int, spread: float, shift: float
) -> None:
    w = ((np.random.default_rng(seed).standard_normal(shape) + shift) * spread).astype(np.float32)
    weight = quantize(w, zeros(group))
    assert weight.zero is not None
    assert (weight.q.dtype, weight.scale.dtype, weight.zero.dtype) == (np.int8, np.float32, np.float32)
    assert weight.q.min() >= -8
    assert weight.q.max() <= 7
    assert weight.scale.shape == weight.zero.shape == (shape[0], -(-shape[1] // group))
    assert np.array_equal(weight.scale, fp16(weight.scale))
    assert np.array_equal(weight.zero, fp16(weight.zero))
    error = (weight.dequantize(group).astype(np.float64) - w) ** 2
    # A zero below 256 and the scale times it, to fp16; below fp16's normal range scales are coarser.
    short = weight.scale / 8 + np.abs(weight.zero) * np.spacing(weight.scale.astype(np.float16)).astype(np.float32)
    short = np.repeat(short.astype(np.float64), group, axis=1)[:, : shape[1]]
    for row in range(shape[0]):
        for first in range(0, shape[1], group):
            part = row, slice(first, first + group)
            rounding = (short[part] ** 2).sum()
            assert error[part].sum() <= 1.05 * naive(w[part].astype(np.float64)) + rounding


@pytest.mark.parametrize("whole", [True, False])
def test_a_grid_comes_back(whole: bool) -> None:
    """scale and zero of an AWQ or GPTQ weight (whole zeros), scale and minimum of a GGUF Q4_1 weight (fractional)."""
    rng = np.random.default_rng(1)
    q = rng.integers(0, 15, (40, 6, 32), endpoint=True)
    q[:, :, :2] = 0, 15
    scale = fp16(rng.uniform(0.001, 0.1, (40, 6, 1)))
    minimum = -scale * (np.rint(rng.uniform(0, 15, scale.shape)) if whole else rng.uniform(4, 12, scale.shape))
    w = (scale * q + (minimum if whole else fp16(minimum))).astype(np.float32).reshape(40, 192)
    weight = quantize(w, zeros(32))
    assert np.array_equal(weight.q.reshape(q.shape) + 8, q)
    assert np.array_equal(weight.scale[..., None], scale)
    error = np.abs(weight.dequantize(32) - w) / np.repeat(weight.scale, 32, axis=1)
    assert error.max() < (1e-5 if whole else 0.002)


def test_a_grid_that_does_not_reach_its_ends_comes_back() -> None:
    """Q4_K: scale and minimum were searched for, and 15 of the 16 values may be used."""
    q = np.random.default_rng(2).integers(0, 14, (8, 64), endpoint=True)
    q[:, [0, 1, 32, 33]] = 0, 14, 14, 0
    w = (0.01 * q - 0.077).astype(np.float32)
    assert np.abs(quantize(w, zeros(32)).dequantize(32) - w).max() < 0.01 / 256


@pytest.mark.parametrize("value", [0.0, 0.5, -3.0, 1e-7, 6e4])
def test_constant_groups(value: float) -> None:
    weight = quantize(np.full((3, 32), value, np.float32), zeros(16))
    np.testing.assert_allclose(weight.dequantize(16), value, rtol=1e-3, atol=2e-8)
    if not value:
        assert not weight.scale.any()
        assert weight.zero is not None
        assert not weight.zero.any()


@pytest.mark.parametrize("noise", [1e-7, 1e-5, 1e-3, 0.1])
def test_groups_far_from_zero(noise: float) -> None:
    """A narrow range around a large value: zeros stay finite and the error small beside the value."""
    w = (1 + noise * np.random.default_rng(3).standard_normal((50, 64))).astype(np.float32)
    weight = quantize(w, zeros(32))
    assert weight.zero is not None
    assert np.abs(weight.zero).max() < 300
    assert np.abs(weight.dequantize(32) - w).max() < max(1 / 256, noise / 2)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("spread", [1e-5, 1e-6, 1e-7, 1e-12, 1e-30, 1e-39, 1e-44])
def test_tiny_weights(spread: float) -> None:
    w = (np.random.default_rng(0).standard_normal((16, 64)) * spread).astype(np.float32)
    weight = quantize(w, zeros(64))
    assert np.all(np.abs(weight.dequantize(64) - w) <= np.maximum(weight.scale * 2, np.abs(w)))
    assert np.all(np.isfinite(weight.scale))


def test_a_short_last_group_and_other_rows_do_not_matter() -> None:
    w = np.random.default_rng(5).standard_normal((700, 520)).astype(np.float32)
    weight = quantize(w, zeros(48))
    for rows, columns, groups in (
        (slice(250, 260), slice(0, 480), slice(0, 10)),
        (slice(9, 10), slice(480, 520), [10]),
    ):
        part = quantize(w[rows, columns], zeros(48))
        assert part.zero is not None
        assert weight.zero is not None
        assert np.array_equal(part.q, weight.q[rows, columns])
        assert np.array_equal(part.scale, weight.scale[rows, groups])
        assert np.array_equal(part.zero, weight.zero[rows, groups])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38, 1e7])
@pytest.mark.parametrize("place", [(700, 3), (700, 99)])
def test_weights_that_cannot_be_quantized(bad: float, place: tuple[int, int]) -> None:
    w = np.random.default_rng(0).standard_normal((1000, 100)).astype(np.float32)
    w[place] = bad
    with pytest.raises(BuildError, match=f"row 700, group {place[1] // 64}: its largest weight is"):
        quantize(w, zeros(64))


def test_only_int4_in_groups_has_zeros() -> None:
    for type_, group in ((WeightType.INT8, 64), (WeightType.INT4, 0), (WeightType.FP32, 0)):
        with pytest.raises(ValueError, match="zero points"):
            WeightScheme(type_, group, symmetric=False)
    assert str(zeros(64)) == "int4-g64-zeros"
