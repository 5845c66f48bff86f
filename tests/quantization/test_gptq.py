"""GPTQ against its paper's own updates, and against rounding to nearest."""

from typing import Any

import numpy as np
import pytest
from correlated import inputs, observed, weights
from hypothesis import given, settings
from hypothesis import strategies as st

from enginesmith.errors import BuildError
from enginesmith.quantization import fp8, gptq, rtn
from enginesmith.quantization.feedback import Feedback
from enginesmith.quantization.quantized import QuantizedWeight
from enginesmith.quantization.scheme import WeightScheme, WeightType
from enginesmith.quantization.statistics import InputStatistics, relative_error
from enginesmith.quantization.storable import levels

INT4, INT8, FP8 = WeightType.INT4, WeightType.INT8, WeightType.FP8
SCHEMES = [
    WeightScheme(INT4, 32, symmetric=False),
    WeightScheme(INT4, 32),
    WeightScheme(INT4),
    WeightScheme(INT8, 32),
    WeightScheme(INT8),
    WeightScheme(FP8),
    WeightScheme(FP8, 64),
]


def rounded(w: np.ndarray, scheme: WeightScheme) -> QuantizedWeight:
    return fp8.quantize(w, scheme) if scheme.type is FP8 else rtn.quantize(w, scheme, storable=True)


def feedback(statistics: InputStatistics, scheme: WeightScheme, **options: Any) -> Feedback:
    return Feedback.of(statistics.hessian, scheme.group_size, **options)


def surgeon(
    w: np.ndarray,
    scheme: WeightScheme,
    grid: QuantizedWeight,
    statistics: InputStatistics,
    order: np.ndarray,
    damping: float = 0.01,
) -> QuantizedWeight:
    """Optimal brain surgery, a column at a time, in float64: round one, move all later ones to make up for it, remove
    its row and column from the inverse Hessian by elimination. Numbers on the grids of `grid`."""
    hessian = statistics.hessian.astype(np.float64)
    hessian += damping * np.diagonal(hessian).mean() * np.eye(len(hessian))
    inverse = np.linalg.inv(hessian)
    left = w.astype(np.float64)
    q = np.empty(w.shape, grid.q.dtype)
    for column in order:
        group = column // (scheme.group_size or w.shape[1])
        scale = grid.scale[:, group]
        zero = np.zeros_like(scale) if grid.zero is None else grid.zero[:, group]
        wanted = left[:, column] / scale
        if scheme.type is FP8:
            q[:, column] = np.clip(wanted, -448, 448).astype(np.float32)
        else:
            q[:, column] = np.clip(np.rint(wanted) + zero, *levels(scheme.type))
        error = (left[:, column] - scale * (q[:, column].astype(np.float64) - zero)) / inverse[column, column]
        left -= np.outer(error, inverse[column])
        inverse -= np.outer(inverse[:, column], inverse[column]) / inverse[column, column]
        inverse[column, column] = 1  # done with: nothing reaches it, nor it anything
    return QuantizedWeight(q, grid.scale, grid.zero)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("act_order", [False, True])
@pytest.mark.parametrize("damping", [0.01, 0.2])
def test_equals_optimal_brain_surgery(scheme: WeightScheme, act_order: bool, damping: float) -> None:
    k = 200  # more than a run, and not whole groups
    w, statistics = weights(12, k), observed(inputs(600, k))
    known = feedback(statistics, scheme, damping=damping, act_order=act_order)
    found = gptq.quantize(w, scheme, known)
    expected = surgeon(w, scheme, found, statistics, known.order, damping)
    # A weight halfway between two integers may go either way, and those after it in its row follow.
    same = (found.q == expected.q).all(axis=1)
    assert same.mean() >= (0.9 if scheme.type is INT4 else 0.6)


@pytest.mark.parametrize("scheme", SCHEMES[:2], ids=str)
def test_grids_found_on_the_way_are_better_than_those_found_first(scheme: WeightScheme) -> None:
    w, x = weights(96, 128), inputs(4000, 128)
    seen, unseen = observed(x[:3000]), observed(x[3000:])
    first = surgeon(w, scheme, rounded(w, scheme), seen, feedback(seen, scheme).order).dequantize(scheme.group_size)
    made = gptq.quantize(w, scheme, feedback(seen, scheme)).dequantize(scheme.group_size)
    assert relative_error(w, made, unseen) < 0.97 * relative_error(w, first, unseen)


def test_groups_of_large_inputs_come_first() -> None:
    statistics = observed(inputs(300, 80))
    squares, order = np.diagonal(statistics.hessian), feedback(statistics, SCHEMES[0]).order
    assert np.array_equal(np.sort(order), np.arange(80))
    groups = [group for group, before in zip(order // 32, [-1, *(order[:-1] // 32)], strict=True) if group != before]
    assert len(groups) == 3
    means = [squares[32 * group : 32 * group + 32].mean() for group in groups]
    assert means == sorted(means, reverse=True)
    within = squares[order[order // 32 == 1]]
    assert np.array_equal(within, np.sort(within)[::-1])


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_outputs_are_clearly_better_than_round_to_nearest(scheme: WeightScheme) -> None:
    w, x = weights(96, 128), inputs(4000, 128)
    seen, unseen = observed(x[:3000]), observed(x[3000:])
    plain = rounded(w, scheme).dequantize(scheme.group_size)
    made = gptq.quantize(w, scheme, feedback(seen, scheme)).dequantize(scheme.group_size)
    assert relative_error(w, made, unseen) < 0.7 * relative_error(w, plain, unseen)


@settings(max_examples=25)
@given(n=st.integers(1, 6), k=st.integers(32, 70), tokens=st.integers(1, 90), seed=st.integers(0, 99))
def test_storable_whatever_the_inputs(n: int, k: int, tokens: int, seed: int) -> None:
    """Also of fewer tokens than inputs: their Hessian is singular."""
    scheme, w = SCHEMES[0], weights(n, k, seed)
    statistics = observed(inputs(tokens, k, seed))
    made = gptq.quantize(w, scheme, feedback(statistics, scheme))
    assert made.zero is not None
    for numbers in (made.q, made.zero):
        assert numbers.min() >= -8
        assert numbers.max() <= 7
    assert np.array_equal(made.zero, np.rint(made.zero))
    assert np.array_equal(made.scale, made.scale.astype(np.float16))
    assert made.scale.min() > 0


def test_dead_inputs_are_rounded_to_nearest() -> None:
    x = inputs(500, 64)
    x[:, [3, 40]] = 0
    scheme, w = SCHEMES[0], weights(10, 64)
    statistics = observed(x)
    made = gptq.quantize(w, scheme, feedback(statistics, scheme))
    assert made.zero is not None
    zero = np.repeat(made.zero, 32, axis=1)
    nearest = np.clip(np.rint(w / np.repeat(made.scale, 32, axis=1)) + zero, -8, 7)
    assert np.array_equal(made.q[:, [3, 40]], nearest[:, [3, 40]])
    assert not np.array_equal(made.q, nearest)


def test_no_inputs_at_all() -> None:
    w, nothing = weights(4, 64), InputStatistics.empty(64)
    made = gptq.quantize(w, SCHEMES[0], feedback(nothing, SCHEMES[0]))
    assert np.array_equal(made.q, rtn.quantize(w, SCHEMES[0], storable=True).q)


def test_damping_grows_until_the_hessian_is_positive_definite() -> None:
    statistics = observed(inputs(500, 64))
    statistics.hessian[np.diag_indices(64)] *= 0.9  # no sum of x xᵀ
    assert np.linalg.eigvalsh(statistics.hessian)[0] < 0
    w = weights(4, 64)
    made = gptq.quantize(w, SCHEMES[0], feedback(statistics, SCHEMES[0], damping=1e-6))
    assert np.abs(made.dequantize(32) - w).max() < 0.05


def test_a_hessian_that_is_none() -> None:
    statistics = observed(inputs(500, 64))
    statistics.hessian[0, 1] = statistics.hessian[1, 0] = 1e15
    with pytest.raises(BuildError, match="not positive definite"):
        feedback(statistics, SCHEMES[0])


def test_weights_on_the_grid_come_back() -> None:
    scheme = SCHEMES[0]
    on_grid = rtn.quantize(weights(20, 96), scheme, storable=True).dequantize(32)
    made = gptq.quantize(on_grid, scheme, feedback(observed(inputs(400, 96)), scheme))
    assert np.array_equal(made.dequantize(32), on_grid)


def test_weights_that_cannot_be_quantized() -> None:
    w = weights(4, 64)
    w[2, 50] = np.nan
    with pytest.raises(BuildError, match="row 2, group 1"):
        gptq.quantize(w, SCHEMES[0], feedback(observed(inputs(100, 64)), SCHEMES[0]))
    with pytest.raises(BuildError, match="larger than K"):
        gptq.quantize(weights(4, 16), SCHEMES[0], feedback(observed(inputs(100, 16)), SCHEMES[0]))
