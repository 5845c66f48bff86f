import numpy as np
import pytest
from correlated import inputs, observed, weights

from enginesmith.errors import BuildError
from enginesmith.quantization import awq, rtn
from enginesmith.quantization.metric import Metric
from enginesmith.quantization.scheme import WeightScheme, WeightType
from enginesmith.quantization.statistics import InputStatistics

SCHEME = WeightScheme(WeightType.INT4, 32, symmetric=False)


def outputs_error(ws: list[np.ndarray], x: np.ndarray, scale: np.ndarray, scheme: WeightScheme) -> float:
    """The squared error of outputs, by running all inputs x through the rounded layers, in float64."""
    metric = Metric.of(observed(x).divided(scale).mean_hessian, scheme.group_size)
    total = 0.0
    for w in ws:
        made = rtn.quantize(w * scale, scheme, storable=True, metric=metric).dequantize(scheme.group_size)
        difference = (x / scale).astype(np.float64) @ made.T - x.astype(np.float64) @ w.T
        total += float((difference**2).sum())
    return total


@pytest.mark.parametrize("scheme", [SCHEME, WeightScheme(WeightType.INT4, 64), WeightScheme(WeightType.INT4)], ids=str)
def test_the_scale_helps_outputs(scheme: WeightScheme) -> None:
    ws, x = [weights(48, 96, 1), weights(16, 96, 2)], inputs(3000, 96)
    scale = awq.search_scales(ws, scheme, observed(x[:2000]))
    assert scale.dtype == np.float32
    assert np.all(scale > 0)
    assert outputs_error(ws, x[2000:], scale, scheme) < 0.97 * outputs_error(ws, x[2000:], np.ones(96), scheme)


def test_no_tried_exponent_is_much_better() -> None:
    """Brute force over powers of the inputs' mean magnitude, on the inputs themselves."""
    w, x = weights(64, 64), inputs(2000, 64)
    statistics = observed(x)
    found = outputs_error([w], x, awq.search_scales([w], SCHEME, statistics), SCHEME)
    powers = [statistics.absmean**exponent for exponent in np.linspace(0, 1, 21)]
    best = min(outputs_error([w], x, (s / np.sqrt(s.max() * s.min())).astype(np.float32), SCHEME) for s in powers)
    assert found <= 1.03 * best


def test_nothing_is_scaled_where_that_would_not_help() -> None:
    """Weights on the grid already, and inputs never seen."""
    on_grid = rtn.quantize(weights(16, 64), SCHEME, storable=True).dequantize(32)
    assert np.all(awq.search_scales([on_grid], SCHEME, observed(inputs(300, 64))) == 1)
    assert np.all(awq.search_scales([weights(16, 64)], SCHEME, InputStatistics.empty(64)) == 1)


def test_tied_channels_have_equal_scales() -> None:
    tied = np.concatenate([np.arange(16), np.arange(16), np.arange(16, 48)])
    scale = awq.search_scales([weights(40, 64)], SCHEME, observed(inputs(1000, 64)), tied)
    assert np.array_equal(scale[:16], scale[16:32])
    assert len(np.unique(scale)) > 40


def test_dead_channels_and_zero_columns() -> None:
    x, w = inputs(1000, 64), weights(32, 64)
    x[:, 5] = 0
    w[:, 9] = 0
    scale = awq.search_scales([w], SCHEME, observed(x))
    assert np.all(np.isfinite(scale))
    assert np.all(scale > 0)


def test_weights_that_cannot_be_quantized() -> None:
    w = weights(900, 64)
    w[777, 50] = np.inf
    with pytest.raises(BuildError, match="row 777, group 1"):
        awq.search_scales([weights(3, 64), w], SCHEME, observed(inputs(100, 64)))


def test_scales_that_take_a_weight_beyond_fp16_are_not_taken() -> None:
    """A step of 60000 fits, and none that is much larger."""
    x, w = inputs(400, 64), weights(16, 64)
    x[:, 5] *= 1000
    w[3, 5] = 15 * 60000.0 / 2
    scale = awq.search_scales([w], SCHEME, observed(x))
    rtn.quantize(w * scale, SCHEME, storable=True)
