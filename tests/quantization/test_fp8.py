import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginesmith.errors import BuildError
from enginesmith.quantization import fp8
from enginesmith.quantization.scheme import WeightScheme, WeightType

CHANNEL = WeightScheme(WeightType.FP8)
CODES = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
CODES = np.unique(CODES[np.isfinite(CODES)])


@given(
    n=st.integers(1, 6),
    k=st.integers(8, 50),
    group=st.sampled_from([0, 8]),
    per_tensor=st.booleans(),
    seed=st.integers(0, 99),
    spread=st.sampled_from([1e-20, 1e-3, 1.0, 1e6, 1e30]),
)
def test_the_nearest_code(n: int, k: int, group: int, per_tensor: bool, seed: int, spread: float) -> None:
    w = (np.random.default_rng(seed).standard_normal((n, k)) * spread).astype(np.float32)
    weight = fp8.quantize(w, WeightScheme(WeightType.FP8, group), per_tensor=per_tensor)
    assert (weight.q.dtype, weight.scale.dtype, weight.zero) == (ml_dtypes.float8_e4m3fn, np.float32, None)
    assert weight.scale.shape == (n, -(-k // group) if group else 1)
    assert np.all(weight.scale > 0)
    assert not per_tensor or len(np.unique(weight.scale)) == 1
    codes = weight.q.astype(np.float64)
    assert np.all(np.isfinite(codes))
    scaled = w.astype(np.float64) / np.repeat(weight.scale, group or k, axis=1)[:, :k]
    nearest = np.abs(scaled[..., None] - CODES).min(axis=2)
    assert np.all(np.abs(codes - scaled) <= nearest + 1e-5 * np.abs(scaled))
    assert np.abs(codes).max() == 448


@pytest.mark.parametrize("per_tensor", [False, True])
def test_zeros(per_tensor: bool) -> None:
    w = np.zeros((3, 8), np.float32)
    weight = fp8.quantize(w, CHANNEL, per_tensor=per_tensor)
    assert np.all(weight.scale == 1)
    assert not weight.dequantize(0).any()
    w[1, 2] = 5
    weight = fp8.quantize(w, CHANNEL, per_tensor=per_tensor)
    np.testing.assert_allclose(weight.dequantize(0), w, rtol=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("largest", [1e-44, 1e-40, 1e-38, 3.4e38])
def test_the_ends_of_float32(largest: float) -> None:
    w = np.array([[largest, -largest / 2, 0]], np.float32)
    weight = fp8.quantize(w, CHANNEL)
    assert np.all(np.isfinite(weight.q.astype(np.float32)))
    assert np.all(weight.scale > 0)
    assert np.all(np.abs(weight.dequantize(0).astype(np.float64) - w) <= 0.1 * largest + 1e-37)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite(bad: float) -> None:
    w = np.ones((5000, 64), np.float32)
    w[4000, 3] = bad
    with pytest.raises(BuildError, match="row 4000, group 0: its largest weight is"):
        fp8.quantize(w, CHANNEL)


def test_schemes_it_refuses() -> None:
    with pytest.raises(ValueError, match="int8"):
        fp8.quantize(np.ones((2, 2), np.float32), WeightScheme(WeightType.INT8))
    with pytest.raises(BuildError, match="groups of 64 weights are larger than K, which is 48"):
        fp8.quantize(np.ones((2, 48), np.float32), WeightScheme(WeightType.FP8, 64))


@pytest.mark.parametrize("shape", [(0, 8), (3, 0)])
def test_empty(shape: tuple[int, int]) -> None:
    assert fp8.quantize(np.empty(shape, np.float32), CHANNEL).q.shape == shape
