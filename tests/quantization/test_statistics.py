import numpy as np
import pytest
from correlated import inputs, observed, weights
from numpy.testing import assert_allclose

from enginesmith.errors import BuildError
from enginesmith.quantization.statistics import InputStatistics, relative_error, squared_error


def test_sums_over_parts() -> None:
    x = inputs(300, 24)
    statistics = InputStatistics.empty(24)
    for part in np.split(x, [1, 1, 120]):
        statistics.add(part)
    exact = x.astype(np.float64)
    assert statistics.tokens == 300
    assert statistics.hessian.dtype == np.float32
    assert_allclose(statistics.hessian, exact.T @ exact, rtol=1e-4, atol=1e-3)
    assert_allclose(statistics.mean_hessian, exact.T @ exact / 300, rtol=1e-4, atol=1e-5)
    assert_allclose(statistics.absmean, np.abs(exact).mean(axis=0), rtol=1e-5)
    assert np.array_equal(statistics.absmax, np.abs(x).max(axis=0))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_refuses_what_is_not_finite(bad: float) -> None:
    x = inputs(10, 4)
    x[7, 2] = bad
    statistics = observed(inputs(5, 4))
    before = statistics.hessian.copy()
    with pytest.raises(BuildError, match=f"input 2 of token 7 is {bad}"):
        statistics.add(x)
    assert statistics.tokens == 5
    assert np.array_equal(statistics.hessian, before)


def test_divided_inputs() -> None:
    x, scale = inputs(200, 16), np.geomspace(0.1, 10, 16, dtype=np.float32)
    found, expected = observed(x).divided(scale), observed(x / scale)
    assert found.tokens == 200
    for name in ("hessian", "absmax", "abs_sum"):
        assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-4, atol=1e-3)


def test_errors_are_those_of_outputs() -> None:
    x, w = inputs(500, 32), weights(8, 32)
    other = w + weights(8, 32, seed=2) * 0.1
    y, changed = x.astype(np.float64) @ w.T, x.astype(np.float64) @ other.T
    statistics = observed(x)
    assert squared_error(w - other, statistics.hessian) == pytest.approx(((y - changed) ** 2).sum(), rel=1e-4)
    expected = np.linalg.norm(y - changed) / np.linalg.norm(y)
    assert relative_error(w, other, statistics) == pytest.approx(expected, rel=1e-4)


def test_errors_without_outputs() -> None:
    w, nothing = weights(2, 4), np.zeros((2, 4), np.float32)
    assert relative_error(w, w, observed(inputs(9, 4))) == 0
    assert relative_error(w, nothing, InputStatistics.empty(4)) == 0
    assert relative_error(nothing, w, observed(inputs(9, 4))) == np.inf
