import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginesmith.errors import BuildError
from enginesmith.quantization.rtn import quantize
from enginesmith.quantization.scheme import WeightScheme, WeightType

INT4, INT8 = WeightType.INT4, WeightType.INT8
SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 70))
GROUPS = st.sampled_from([0, 1, 8, 20, 32, 64, 128])


def weights(n: int, k: int, seed: int = 0, spread: float = 0.02) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((n, k)) * spread).astype(np.float32)


def naive_int4(group: np.ndarray, *, grouped: bool) -> tuple[np.ndarray, float, float]:
    """One group, by the definition, in float64: values, scale, squared error."""
    best = None
    largest = float(group[np.argmax(np.abs(group))])
    for scale, lowest, highest in ((largest / -8, -8, 7), (abs(largest) / 7, -7, 7)):
        scale = float(np.float16(np.float32(scale))) if grouped else scale
        q = np.clip(np.rint(group / scale), lowest, highest) if scale else np.zeros(len(group))
        error = float(((q * scale - group) ** 2).sum())
        if best is None or error < best[2]:
            best = q, scale, error
    assert best is not None
    return best


@given(shape=SHAPES, group=GROUPS, seed=st.integers(0, 99), spread=st.sampled_from([1e-3, 0.02, 1.0, 300.0]))
def test_int8_is_within_half_a_step(shape: tuple[int, int], group: int, seed: int, spread: float) -> None:
    w, scheme = weights(*shape, seed, spread), WeightScheme(INT8, group)
    weight = quantize(w, scheme)
    q, scale = weight.q, weight.scale
    assert (q.dtype, scale.dtype) == (np.int8, np.float32)
    assert q.shape == w.shape
    assert scale.shape == (shape[0], scheme.groups(shape[1]))
    assert q.min() >= -127
    assert not group or np.array_equal(scale, scale.astype(np.float16).astype(np.float32))
    step = np.repeat(scale, group or shape[1], axis=1)[:, : shape[1]]
    # A scale rounded down to fp16 clips the largest weight by at most 127 * 2**-11 of a step.
    assert np.all(np.abs(weight.dequantize(group) - w) <= step * 0.5625)


@given(shape=SHAPES, group=GROUPS, seed=st.integers(0, 99), spread=st.sampled_from([1e-2, 0.02, 1.0, 300.0]))
def test_int4_is_the_better_of_both_forms(shape: tuple[int, int], group: int, seed: int, spread: float) -> None:
    w, scheme = weights(*shape, seed, spread), WeightScheme(INT4, group)
    weight = quantize(w, scheme)
    q, scale = weight.q, weight.scale
    assert q.min() >= -8
    assert q.max() <= 7
    assert not group or np.array_equal(scale, scale.astype(np.float16).astype(np.float32))
    error = (weight.dequantize(group).astype(np.float64) - w) ** 2
    size = group or shape[1]
    for row in range(shape[0]):
        for index in range(scheme.groups(shape[1])):
            part = slice(index * size, (index + 1) * size)
            assert (
                error[row, part].sum()
                <= naive_int4(w[row, part].astype(np.float64), grouped=bool(group))[2] * (1 + 1e-4) + 1e-12
            )


def test_int4_uses_all_sixteen_levels() -> None:
    group = np.array([[8.0, *range(-7, 8)]], np.float32)
    weight = quantize(group, WeightScheme(INT4, 16))
    q, scale = weight.q, weight.scale
    assert scale.item() == -1
    assert sorted(set(q[0].tolist())) == list(range(-8, 8))
    assert np.array_equal(weight.dequantize(16), group)


def test_int4_keeps_both_ends_where_that_is_better() -> None:
    group = np.array([[7.0, -7.0] * 8], np.float32)
    weight = quantize(group, WeightScheme(INT4, 16))
    assert np.array_equal(weight.dequantize(16), group)


@pytest.mark.parametrize("type_", [INT4, INT8])
def test_zero_groups(type_: WeightType) -> None:
    w = weights(3, 64)
    w[1, 16:32] = 0
    weight = quantize(w, WeightScheme(type_, 16))
    q, scale = weight.q, weight.scale
    assert scale[1, 1] == 0
    assert not q[1, 16:32].any()
    assert np.all(scale[[0, 2], 1] != 0)


@pytest.mark.parametrize("type_", [INT4, INT8])
@given(k=st.integers(1, 70), group=st.sampled_from([8, 16, 24]))
def test_a_short_last_group_stands_alone(type_: WeightType, k: int, group: int) -> None:
    w, whole = weights(4, k), k - k % group
    weight = quantize(w, WeightScheme(type_, group))
    q, scale = weight.q, weight.scale
    parts = [quantize(part, WeightScheme(type_, group)) for part in (w[:, :whole], w[:, whole:]) if part.size]
    assert np.array_equal(q, np.concatenate([part.q for part in parts], axis=1))
    assert np.array_equal(scale, np.concatenate([part.scale for part in parts], axis=1))


@pytest.mark.parametrize("type_", [INT4, INT8])
def test_rows_do_not_depend_on_their_block(type_: WeightType) -> None:
    w, scheme = weights(700, 520), WeightScheme(type_, 48)  # three blocks of rows
    weight = quantize(w, scheme)
    q, scale = weight.q, weight.scale
    for rows in (slice(0, 1), slice(250, 260), slice(699, 700)):
        part = quantize(w[rows], scheme)
        assert np.array_equal(part.q, q[rows])
        assert np.array_equal(part.scale, scale[rows])


def test_other_floating_types_and_layouts() -> None:
    stored = weights(8, 96).astype(ml_dtypes.bfloat16)
    expected = quantize(stored.astype(np.float32), WeightScheme(INT4, 32))
    for same in (stored, np.asfortranarray(stored), np.ascontiguousarray(stored.T).T):
        found = quantize(same, WeightScheme(INT4, 32))
        assert np.array_equal(found.q, expected.q)
        assert np.array_equal(found.scale, expected.scale)


@pytest.mark.parametrize("type_", [INT4, INT8])
@pytest.mark.parametrize("spread", [1e-5, 1e-6, 1e-7])
def test_tiny_weights_are_not_clipped(type_: WeightType, spread: float) -> None:
    """Scales below fp16's normal range are coarse; they are rounded away from zero."""
    w = weights(16, 64, spread=spread)
    weight = quantize(w, WeightScheme(type_, 64))
    scale = weight.scale
    error = np.abs(weight.dequantize(64) - w)
    assert np.all(error <= np.abs(scale) * 1.01)
    assert np.all(np.abs(scale) * (127 if type_ is INT8 else 8) >= np.abs(w).max(axis=1, keepdims=True) * 0.99)


@pytest.mark.parametrize("type_", [INT4, INT8])
@pytest.mark.parametrize("exponent", [-50, -30, 0, 30, 50])
def test_scales_of_channels_have_the_range_of_float32(type_: WeightType, exponent: int) -> None:
    """Weights times a power of two are the same integers."""
    w = weights(4, 96)
    usual, scaled = quantize(w, WeightScheme(type_)), quantize(np.ldexp(w, exponent), WeightScheme(type_))
    assert np.array_equal(scaled.q, usual.q)
    assert np.array_equal(scaled.scale, np.ldexp(usual.scale, exponent))


@pytest.mark.parametrize("type_", [INT4, INT8])
def test_subnormal_channels_are_finite(type_: WeightType) -> None:
    w = np.array([[1e-45, -3e-45], [0, 0]], np.float32)
    weight = quantize(w, WeightScheme(type_))
    assert np.isfinite(weight.scale).all()
    assert np.abs(weight.dequantize(0)).max() <= 1e-37


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38, 1e7])
@pytest.mark.parametrize("type_", [INT4, INT8])
@pytest.mark.parametrize("place", [(700, 3), (700, 99)])
def test_weights_that_cannot_be_quantized(bad: float, type_: WeightType, place: tuple[int, int]) -> None:
    w = weights(1000, 100)
    w[place] = bad
    with pytest.raises(BuildError, match=f"row 700, group {place[1] // 64}: its largest weight is"):
        quantize(w, WeightScheme(type_, 64))


@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (0, 0)])
def test_empty(shape: tuple[int, int]) -> None:
    weight = quantize(np.empty(shape, np.float32), WeightScheme(INT4, 8))
    q, scale = weight.q, weight.scale
    assert q.shape == shape
    assert scale.shape == (shape[0], -(-shape[1] // 8))


def test_only_integer_schemes() -> None:
    with pytest.raises(ValueError, match="bf16"):
        quantize(weights(2, 2), WeightScheme(WeightType.BF16))


def test_temporaries_are_small() -> None:
    w = weights(4096, 1024)
    tracemalloc.start()
    weight = quantize(w, WeightScheme(INT4, 64))
    q, scale = weight.q, weight.scale
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - q.nbytes - scale.nbytes < 8 << 20
