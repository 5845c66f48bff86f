import numpy as np
import pytest
from correlated import inputs, observed, weights

from enginesmith.quantization import rtn, smoothquant
from enginesmith.quantization.scheme import WeightScheme, WeightType

INT8 = WeightScheme(WeightType.INT8)


def rounded(x: np.ndarray) -> np.ndarray:
    """Each token's inputs in int8 with the token's own scale."""
    scale = np.abs(x).max(axis=1, keepdims=True) / 127
    return np.rint(x / scale) * scale


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.8])
def test_the_papers_formula(alpha: float) -> None:
    ws, statistics = [weights(8, 32, 1), weights(4, 32, 2)], observed(inputs(100, 32))
    scale = smoothquant.search_scales(ws, statistics, alpha=alpha)
    expected = statistics.absmax**alpha / np.abs(np.concatenate(ws)).max(axis=0) ** (1 - alpha)
    ratio = scale / expected
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-4)  # a common factor changes nothing
    assert scale.max() * scale.min() == pytest.approx(1, rel=1e-4)


def test_outliers_of_inputs_cost_less() -> None:
    x, w = inputs(500, 128), weights(64, 128)
    x[:, [7, 90]] *= 50
    exact = x @ w.T
    errors = []
    for scale in (np.ones(128, np.float32), smoothquant.search_scales([w], observed(x))):
        made = rtn.quantize(w * scale, INT8, storable=True).dequantize(0)
        errors.append(np.linalg.norm(rounded(x / scale) @ made.T - exact))
    assert errors[1] < 0.5 * errors[0]


def test_tied_channels_have_equal_scales() -> None:
    tied = np.repeat(np.arange(8), 4)
    scale = smoothquant.search_scales([weights(8, 32)], observed(inputs(100, 32)), tied)
    assert np.array_equal(scale, scale[::4].repeat(4))


def test_dead_channels_have_scale_one() -> None:
    x, w = inputs(100, 32), weights(8, 32)
    x[:, 3] = 0
    w[:, 4] = 0
    scale = smoothquant.search_scales([w], observed(x))
    assert scale[3] == scale[4] == 1
    assert np.all(np.isfinite(scale))
    assert np.all(smoothquant.search_scales([np.zeros_like(w)], observed(x)) == 1)
