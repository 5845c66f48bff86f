"""Linear kernels against NumPy, over weight types, odd sizes, numbers of rows and threads."""

import numpy as np
import pytest

from enginesmith.plugins.cpu.isa import Isa
from enginesmith.plugins.linear.activation import Activation
from enginesmith.plugins.linear.panels import round_to_bf16
from enginesmith.plugins.linear.reference import linear, quantized_linear
from enginesmith.quantization.quantized import QuantizedWeight
from enginesmith.quantization.scheme import WeightScheme, WeightType

FP32, BF16, INT8, INT4 = (WeightScheme(kind) for kind in WeightType)
GROUPED = [
    *(WeightScheme(WeightType.INT8, g) for g in (24, 64)),
    *(WeightScheme(WeightType.INT4, g) for g in (24, 32, 64, 128)),
    *(WeightScheme(WeightType.INT4, g, symmetric=False) for g in (24, 32, 64, 128)),
]
ROWS = [*range(1, 21), 64, 131]


def as_bf16(x: np.ndarray) -> np.ndarray:
    return (round_to_bf16(x).astype(np.uint32) << 16).view(np.float32)


def make_weight(rng, n, k, scheme, random_quantized):
    if scheme.type in (WeightType.INT8, WeightType.INT4):
        return random_quantized(rng, n, k, scheme)
    weight = rng.standard_normal((n, k)).astype(np.float32)
    return as_bf16(weight) if scheme.type is WeightType.BF16 else weight


def make_rows(rng, m, k):
    """Rows of very different sizes, a row of zeros, and one whose groups are zero but for one element."""
    x = (rng.standard_normal((m, k)) * 10.0 ** rng.uniform(-3, 3, (m, 1))).astype(np.float32)
    x[1 % m] = 0
    x[2 % m, 1:] = 0
    return x


def expected_product(x, weight, scheme, isa):
    """x W^T in float64, and the sum of its terms' sizes, which errors are measured against."""
    if isinstance(weight, QuantizedWeight):
        sizes = QuantizedWeight(
            np.abs(weight.q.astype(np.int16)), weight.scale, None if weight.zero is None else -np.abs(weight.zero)
        )
        return (
            quantized_linear(x, weight, scheme.group_size),
            quantized_linear(np.abs(x), sizes, scheme.group_size),
        )
    if scheme.type is WeightType.BF16 and isa is not Isa.AVX2:
        x = as_bf16(x)
    wide_x, wide_w = x.astype(np.float64), weight.astype(np.float64)
    return linear(wide_x, wide_w), linear(np.abs(wide_x), np.abs(wide_w))


def check(driver, rng, shapes, row_counts, threads, random_quantized):
    for n, k in shapes:
        weight = make_weight(rng, n, k, driver.scheme, random_quantized)
        packed = driver.pack(weight, n, k)
        x = make_rows(rng, max(row_counts), k)
        exact, bound = expected_product(x, weight, driver.scheme, driver.isa)
        alone = np.concatenate([driver(packed, x[i : i + 1], n) for i in range(len(x))])
        assert np.all(np.abs(alone - exact) <= 2e-6 * bound), f"{n} x {k}"
        for m in row_counts:
            np.testing.assert_array_equal(driver(packed, x[:m], n), alone[:m], err_msg=f"{n} x {k}, {m} rows")
        chunked = np.concatenate([driver(packed, part, n) for part in np.array_split(x, 3)])
        np.testing.assert_array_equal(chunked, alone)
        for count in threads:
            np.testing.assert_array_equal(driver(packed, x, n, threads=count), alone)


@pytest.mark.parametrize("scheme", [FP32, BF16, INT8, INT4, *GROUPED], ids=str)
def test_matches_reference_and_rows_are_independent(linear_driver, random_quantized, shapes, scheme):
    check(linear_driver(scheme), np.random.default_rng(0), shapes(Isa.AVX2), ROWS, (2, 3), random_quantized)


EMULATED = [(Isa.AVX512, FP32)] + [
    (isa, scheme)
    for isa in (Isa.AVX512, Isa.AMX)
    for scheme in (
        BF16,
        INT8,
        WeightScheme(WeightType.INT8, 64),
        *(s for s in GROUPED[2:] if s.group_size in (24, 128)),
    )
]


@pytest.mark.parametrize(("isa", "scheme"), EMULATED, ids=str)
def test_emulated_instructions_match_reference(linear_driver, random_quantized, shapes, isa, scheme):
    """And integer weights give the very bits that AVX2 gives."""
    rng, driver = np.random.default_rng(1), linear_driver(scheme, isa)
    check(driver, rng, shapes(isa), [1, 2, 5, 7, 16, 17, 35, 100], (2,), random_quantized)
    if scheme.type in (WeightType.INT8, WeightType.INT4):
        plain = linear_driver(scheme)
        for n, k in shapes(isa):
            weight, x = random_quantized(rng, n, k, scheme), make_rows(rng, 9, k)
            np.testing.assert_array_equal(
                driver(driver.pack(weight, n, k), x, n), plain(plain.pack(weight, n, k), x, n)
            )


def test_bias_activation_and_residual(linear_driver):
    n, k, m = 37, 40, 7
    driver = linear_driver(FP32, Isa.AVX2, [(n, k, act) for act in Activation])
    rng = np.random.default_rng(3)
    weight, bias, x, residual = (rng.standard_normal(s).astype(np.float32) for s in ((n, k), (n,), (m, k), (m, n)))
    packed = driver.pack(weight, n, k)
    wide_x, wide_weight = x.astype(np.float64), weight.astype(np.float64)
    for act in Activation:
        for b in (None, bias):
            for r in (None, residual):
                expected = linear(wide_x, wide_weight, b, r, activation=act)
                actual = driver(packed, x, n, bias=b, residual=r, activation=act)
                np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=2e-5, err_msg=f"{act!r}")


def test_outputs_past_the_end_are_not_written(linear_driver):
    """The driver's y is NaN before the call and [M, N] exactly: a store past N would spoil the next row."""
    driver = linear_driver(FP32, Isa.AVX2, [(5, 3, Activation.NONE)])
    weight, x = np.ones((5, 3), np.float32), np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(driver(driver.pack(weight, 5, 3), x, 5), np.repeat(x.sum(1, keepdims=True), 5, 1))
