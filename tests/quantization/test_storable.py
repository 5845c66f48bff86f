"""Storable grids: whole zeros, positive fp16 scales, and the search for the best of them."""

import tracemalloc

import numpy as np
import pytest
from correlated import inputs, observed, weights
from hypothesis import example, given
from hypothesis import strategies as st

from enginesmith.errors import BuildError
from enginesmith.quantization import rtn
from enginesmith.quantization.metric import Metric, measured
from enginesmith.quantization.quantized import QuantizedWeight
from enginesmith.quantization.scheme import WeightScheme, WeightType
from enginesmith.quantization.statistics import relative_error
from enginesmith.quantization.storable import levels

INT4, INT8 = WeightType.INT4, WeightType.INT8
SCHEMES = [
    *(WeightScheme(type_, group) for type_ in (INT4, INT8) for group in (0, 8, 32)),
    *(WeightScheme(INT4, group, symmetric=False) for group in (8, 32)),
]


def check_storable(weight: QuantizedWeight, scheme: WeightScheme, shape: tuple[int, int]) -> None:
    lowest, highest = levels(scheme.type)
    assert weight.q.dtype == np.int8
    assert weight.q.shape == shape
    assert weight.q.min() >= lowest
    assert weight.q.max() <= highest
    assert weight.scale.shape == (shape[0], scheme.groups(shape[1]))
    assert np.array_equal(weight.scale, weight.scale.astype(np.float16).astype(np.float32))
    assert np.all(weight.scale > 0)
    assert (weight.zero is None) == scheme.symmetric
    if weight.zero is not None:
        assert set(np.unique(weight.zero)) <= set(range(-8, 8))


def min_max(w: np.ndarray, scheme: WeightScheme) -> np.ndarray:
    """Round to nearest without a search, in float64, group by group: the weight it stands for."""
    lowest, highest = levels(scheme.type)
    size = scheme.group_size or w.shape[1]
    values = w.astype(np.float64)
    for row in values:
        for first in range(0, len(row), size):
            group = row[first : first + size]
            low, high = min(group.min(), 0), max(group.max(), 0)
            if scheme.symmetric:
                scale, zero = max(high, -low) / highest, 0
            else:
                scale = (high - low) / 15
                zero = np.rint(-8 - low / scale) if scale else 0
            if scale:
                group[:] = scale * (np.clip(np.rint(group / scale) + zero, lowest, highest) - zero)
    return values


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@given(
    n=st.integers(1, 5),
    k=st.integers(32, 70),
    seed=st.integers(0, 99),
    spread=st.sampled_from([1e-3, 0.02, 300.0]),
    shift=st.sampled_from([0.0, 1.0, -3.0]),
)
@example(n=1, k=32, seed=7, spread=0.02, shift=0.0)  # -128 would be the largest weight's, with twice the error
def test_storable_and_no_worse_than_no_search(
    scheme: WeightScheme, n: int, k: int, seed: int, spread: float, shift: float
) -> None:
    w = ((np.random.default_rng(seed).standard_normal((n, k)) + shift) * spread).astype(np.float32)
    weight = rtn.quantize(w, scheme, storable=True)
    check_storable(weight, scheme, w.shape)
    error = ((weight.dequantize(scheme.group_size).astype(np.float64) - w) ** 2).sum()
    plain = ((min_max(w, scheme) - w) ** 2).sum()
    assert error <= plain * 1.02 + 1e-5 * (w.astype(np.float64) ** 2).sum()  # scales are rounded to fp16


@pytest.mark.parametrize("ends", [(-8, 7), (-8, 6), (-7, 7), (-7, 6)])
@pytest.mark.parametrize("with_statistics", [False, True])
def test_a_grid_with_zeros_comes_back(ends: tuple[int, int], with_statistics: bool) -> None:
    rng = np.random.default_rng(1)
    q = rng.integers(*ends, (30, 4, 32), endpoint=True)
    q[:, :, 0], q[:, :, 1] = ends
    scale = rng.uniform(0.001, 0.1, (30, 4, 1)).astype(np.float16).astype(np.float32)
    zero = rng.integers(*ends, (30, 4, 1), endpoint=True)
    w = (scale * (q - zero)).astype(np.float32).reshape(30, 128)
    metric = Metric.of(observed(inputs(300, 128)).mean_hessian, 32) if with_statistics else None
    weight = rtn.quantize(w, WeightScheme(INT4, 32, symmetric=False), storable=True, metric=metric)
    assert np.array_equal(weight.dequantize(32), w)


@pytest.mark.parametrize(("type_", "end"), [(INT4, 4), (INT4, 5), (INT4, 6), (INT4, 7), (INT4, -8), (INT8, -128)])
def test_a_symmetric_grid_comes_back(type_: WeightType, end: int) -> None:
    rng = np.random.default_rng(2)
    q = rng.integers(-abs(end) + 1, abs(end) - 1, (30, 3, 64), endpoint=True)
    q[:, :, 5] = end
    scale = rng.uniform(0.001, 0.1, (30, 3, 1)).astype(np.float16).astype(np.float32)
    w = (scale * q).astype(np.float32).reshape(30, 192)
    assert np.array_equal(rtn.quantize(w, WeightScheme(type_, 64), storable=True).dequantize(64), w)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("value", [0.0, 0.5, -3.0, 6e4])
def test_constant_rows(scheme: WeightScheme, value: float) -> None:
    w = np.full((3, 64), value, np.float32)
    weight = rtn.quantize(w, scheme, storable=True)
    check_storable(weight, scheme, w.shape)
    np.testing.assert_allclose(weight.dequantize(scheme.group_size), value, rtol=1e-3)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("spread", [1e-7, 1e-20, 1e-42, 1e4])
def test_tiny_and_huge_weights(scheme: WeightScheme, spread: float) -> None:
    w = (weights(4, 64) * (50 * spread)).astype(np.float32)
    weight = rtn.quantize(w, scheme, storable=True)
    check_storable(weight, scheme, w.shape)
    step = weight.scale.max()
    assert np.abs(weight.dequantize(scheme.group_size) - w).max() <= max(step, np.abs(w).max() / 2)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_rows_do_not_depend_on_their_block(scheme: WeightScheme) -> None:
    w = weights(700, 520)
    whole = rtn.quantize(w, scheme, storable=True)
    part = rtn.quantize(w[300:310], scheme, storable=True)
    assert np.array_equal(whole.q[300:310], part.q)
    assert np.array_equal(whole.scale[300:310], part.scale)


@pytest.mark.parametrize("scheme", [s for s in SCHEMES if s.type is INT4], ids=str)
def test_statistics_help_outputs(scheme: WeightScheme) -> None:
    w, statistics = weights(64, 96), observed(inputs(2000, 96))
    metric = Metric.of(statistics.mean_hessian, scheme.group_size)
    plain, weighed = (
        relative_error(w, rtn.quantize(w, scheme, storable=True, metric=given).dequantize(scheme.group_size), of)
        for given, of in ((None, statistics), (metric, observed(inputs(2000, 96))))
    )
    assert weighed < 0.95 * plain


@pytest.mark.parametrize(("k", "group"), [(70, 32), (60, 0), (192, 0), (260, 0)])
def test_the_metric_is_that_of_block_hessians(k: int, group: int) -> None:
    x = inputs(400, k)
    scale = np.geomspace(0.2, 5, k).astype(np.float32)
    metric = Metric.of(observed(x).mean_hessian, group).divided(scale)
    first = 0
    for factor in metric.factors:
        for run in factor:
            part = slice(first, first + len(run))
            scaled = x[:, part].astype(np.float64) / scale[part]
            np.testing.assert_allclose(run.T @ run, scaled.T @ scaled / len(x), rtol=1e-3, atol=1e-4)
            first = part.stop
    assert first == k


@pytest.mark.parametrize(("k", "group"), [(64, 16), (70, 32), (24, 0)])
def test_the_metric_of_independent_inputs_is_that_of_the_diagonal(k: int, group: int) -> None:
    x, scale = inputs(400, k, seed=4), np.linspace(0.5, 2, k, dtype=np.float32)
    metric = Metric.independent(observed(x).mean_hessian, group).divided(scale)
    error = weights(3, k, seed=5)
    first, total = 0, np.zeros(3)
    for factor in metric.factors:
        size = factor.size
        part = error[:, first : first + size].T.reshape(len(factor), -1, 3)
        total += (measured(factor, part) ** 2).sum(axis=(0, 1))
        first += size
    assert first == k
    expected = (error.astype(np.float64) ** 2 * (x.astype(np.float64) ** 2).mean(axis=0) / scale**2).sum(axis=1)
    np.testing.assert_allclose(total, expected, rtol=1e-4)


def test_inputs_never_seen_are_rounded_all_the_same() -> None:
    w, metric = weights(8, 64), Metric.of(np.zeros((64, 64), np.float32), 32)
    weight = rtn.quantize(w, WeightScheme(INT4, 32), storable=True, metric=metric)
    assert np.abs(weight.dequantize(32) - w).max() <= weight.scale.max() / 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
def test_weights_that_cannot_be_quantized(bad: float) -> None:
    w = weights(500, 300)
    w[400, 70] = bad
    with pytest.raises(BuildError, match="row 400, group 2: its largest weight is"):
        rtn.quantize(w, WeightScheme(INT4, 32, symmetric=False), storable=True)


def test_groups_larger_than_k() -> None:
    with pytest.raises(BuildError, match="groups of 64 weights are larger than K, which is 48"):
        rtn.quantize(weights(2, 48), WeightScheme(INT4, 64), storable=True)


def test_temporaries_are_small() -> None:
    w = weights(2048, 1024)
    tracemalloc.start()
    weight = rtn.quantize(w, WeightScheme(INT4, 64, symmetric=False), storable=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - weight.q.nbytes < 8 << 20
