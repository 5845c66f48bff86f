"""Linear kernels against NumPy, over weight types, odd sizes, numbers of rows and threads."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from enginesmith.plugins.cpu.isa import Isa
from enginesmith.plugins.linear.activation_function import ActivationFunction
from enginesmith.plugins.linear.cpu.panels import round_to_bf16
from enginesmith.plugins.linear.reference import fp8_activations, largest_fine, linear, quantized_linear, round_to_fp8
from enginesmith.quantization.quantized import QuantizedWeight
from enginesmith.quantization.scheme import ActivationScheme, WeightScheme, WeightType

FP32, BF16, FP8, INT8, INT4 = (WeightScheme(kind) for kind in WeightType)
FP8_GROUPED = WeightScheme(WeightType.FP8, 128)
NONE, DYNAMIC, STATIC = ActivationScheme
GROUPED = [
    *(WeightScheme(WeightType.INT8, g) for g in (24, 64)),
    *(WeightScheme(WeightType.INT4, g) for g in (24, 32, 64, 128)),
    *(WeightScheme(WeightType.INT4, g, symmetric=False) for g in (24, 32, 64, 128)),
]
ROWS = [*range(1, 21), 64, 131]


def as_bf16(x: np.ndarray) -> np.ndarray:
    return (round_to_bf16(x).astype(np.uint32) << 16).view(np.float32)


def make_weight(rng, n, k, scheme, random_quantized):
    if scheme.type.is_scaled:
        return random_quantized(rng, n, k, scheme)
    weight = rng.standard_normal((n, k)).astype(np.float32)
    return as_bf16(weight) if scheme.type is WeightType.BF16 else weight


def make_rows(rng, m, k):
    """Rows of very different sizes, a row of zeros, and one whose groups are zero but for one element."""
    x = (rng.standard_normal((m, k)) * 10.0 ** rng.uniform(-3, 3, (m, 1))).astype(np.float32)
    x[1 % m] = 0
    x[2 % m, 1:] = 0
    return x


def expected_product(x, weight, driver):
    """x W^T in float64, and the sum of its terms' sizes, which errors are measured against."""
    scheme = driver.scheme
    bf16_rows = driver.isa is not Isa.AVX2 and driver.inputs is NONE and not scheme.type.is_integer
    if scheme.type.is_integer:
        sizes = QuantizedWeight(
            np.abs(weight.q.astype(np.int16)), weight.scale, None if weight.zero is None else -np.abs(weight.zero)
        )
        scale = driver.input_scale if driver.inputs is STATIC else None
        fine = scheme.type is WeightType.INT8 and driver.inputs is NONE
        largest = largest_fine(scheme.group_size) if fine else 127
        return tuple(
            quantized_linear(rows, w, scheme.group_size, largest, scale)
            for rows, w in ((x, weight), (np.abs(x), sizes))
        )
    if bf16_rows and scheme.type is not WeightType.FP32:
        x = as_bf16(x)
    if scheme.type is WeightType.FP8:
        x, weight = fp8_activations(x, driver.inputs, driver.input_scale), weight.dequantize(scheme.group_size)
    wide_x, wide_w = x.astype(np.float64), weight.astype(np.float64)
    return linear(wide_x, wide_w), linear(np.abs(wide_x), np.abs(wide_w))


def check(driver, rng, shapes, row_counts, threads, random_quantized):
    for n, k in shapes:
        weight = make_weight(rng, n, k, driver.scheme, random_quantized)
        packed = driver.pack(weight, n, k)
        x = make_rows(rng, max(row_counts), k)
        exact, bound = expected_product(x, weight, driver)
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


ROUNDED_INPUTS = [
    (FP8, NONE),
    *((scheme, inputs) for scheme in (FP8, FP8_GROUPED) for inputs in (DYNAMIC, STATIC)),
    *((WeightScheme(WeightType.INT8, group), inputs) for group in (0, 64) for inputs in (DYNAMIC, STATIC)),
]


@pytest.mark.parametrize("native", [None, Isa.AVX512], ids=str)
@pytest.mark.parametrize(("scheme", "inputs"), ROUNDED_INPUTS, ids=str)
def test_inputs_are_rounded_as_the_layer_asks(linear_driver, random_quantized, shapes, scheme, inputs, native):
    """FP8 weights and static inputs, on AVX2 and in AVX-512's own instructions."""
    driver = linear_driver(scheme, native or Isa.AVX2, inputs=inputs, native=native is not None)
    check(driver, np.random.default_rng(4), shapes(Isa.AVX2), ROWS, (2, 3), random_quantized)


@pytest.mark.parametrize("isa", [Isa.AVX512, Isa.AMX])
@pytest.mark.parametrize(("scheme", "inputs"), ROUNDED_INPUTS, ids=str)
def test_emulated_instructions_round_inputs_alike(linear_driver, random_quantized, shapes, scheme, inputs, isa):
    rng, driver = np.random.default_rng(5), linear_driver(scheme, isa, inputs=inputs)
    check(driver, rng, shapes(isa), [1, 2, 5, 7, 17, 35, 100], (2,), random_quantized)


@pytest.mark.parametrize("isa", list(Isa))
def test_fp8_numbers_are_decoded_exactly(linear_driver, isa):
    """Each of the 254 numbers, subnormals and both zeros among them, times one."""
    codes = np.array([code for code in range(256) if code & 0x7F != 0x7F], np.uint8)
    driver = linear_driver(FP8, isa, [(len(codes), 1, ActivationFunction.NONE)], inputs=DYNAMIC)
    weight = QuantizedWeight(codes.view(ml_dtypes.float8_e4m3fn)[:, None], np.full((len(codes), 1), 0.5, np.float32))
    y = driver(driver.pack(weight, len(codes), 1), np.array([[448.0]], np.float32), len(codes))
    np.testing.assert_array_equal(y[0], codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * 224)


@given(arrays.arrays(np.float32, 32, elements=st.floats(-500, 500, width=32)))
def test_rounding_to_fp8_is_that_of_ml_dtypes(x):
    clipped = np.clip(x, -448, 448)
    np.testing.assert_array_equal(round_to_fp8(x), clipped.astype(ml_dtypes.float8_e4m3fn).astype(np.float32))


NATIVE = [BF16, INT8, *GROUPED[:2], INT4, *GROUPED[-4:], WeightScheme(WeightType.INT4, 96)]


@pytest.mark.parametrize("isa", [Isa.AVX512, Isa.AMX])
@pytest.mark.parametrize("scheme", NATIVE, ids=str)
def test_native_instructions_match_reference(linear_driver, random_quantized, shapes, isa, scheme):
    """Where the machine has them; integer weights give the very bits that AVX2 gives."""
    rng, driver = np.random.default_rng(3), linear_driver(scheme, isa, native=True)
    check(driver, rng, shapes(isa, native=True), [*ROWS, 40], (2,), random_quantized)
    if scheme.type.is_integer:
        same_bits(linear_driver(scheme), driver, rng, shapes(isa), random_quantized)


def same_bits(plain, driver, rng, shapes, random_quantized):
    for n, k in shapes:
        weight, x = random_quantized(rng, n, k, driver.scheme), make_rows(rng, 20, k)
        np.testing.assert_array_equal(driver(driver.pack(weight, n, k), x, n), plain(plain.pack(weight, n, k), x, n))


EMULATED = [(Isa.AVX512, FP32)] + [
    (isa, scheme)
    for isa in (Isa.AVX512, Isa.AMX)
    for scheme in (
        BF16,
        INT8,
        *(WeightScheme(WeightType.INT8, g) for g in (24, 64)),
        *(s for s in GROUPED[2:] if s.group_size in (24, 128)),
    )
]


@pytest.mark.parametrize(("isa", "scheme"), EMULATED, ids=str)
def test_emulated_instructions_match_reference(linear_driver, random_quantized, shapes, isa, scheme):
    """And integer weights give the very bits that AVX2 gives."""
    rng, driver = np.random.default_rng(1), linear_driver(scheme, isa)
    check(driver, rng, shapes(isa), [1, 2, 5, 7, 16, 17, 35, 100], (2,), random_quantized)
    if scheme.type.is_integer:
        same_bits(linear_driver(scheme), driver, rng, shapes(isa), random_quantized)


@pytest.mark.parametrize("isa", list(Isa))
@pytest.mark.parametrize("group", [128, 1024, 4096])
def test_largest_sums_of_int8_groups_are_exact(linear_driver, isa, group):
    """Weights of -128 and inputs that are all the largest; from groups of 1040 on inputs leave room in the sum."""
    n, largest = 3, largest_fine(group)
    scheme = WeightScheme(WeightType.INT8, group)
    driver = linear_driver(scheme, isa, [(n, group, ActivationFunction.NONE)])
    weight = QuantizedWeight(np.full((n, group), -128, np.int8), np.ones((n, 1), np.float32))
    x = np.full((20, group), largest, np.float32)  # their scale is 1
    x[1::2] *= -1
    y = driver(driver.pack(weight, n, group), x, n)
    np.testing.assert_array_equal(y, np.repeat(x[:, :1] * np.float32(-128 * group), n, axis=1))


@pytest.mark.parametrize("isa", list(Isa))
@pytest.mark.parametrize(
    ("scheme", "inputs"),
    [(INT8, NONE), (INT8, DYNAMIC), (WeightScheme(WeightType.INT8, 64), NONE), (GROUPED[4], NONE), (FP8, DYNAMIC)],
    ids=str,
)
def test_a_nan_among_inputs_reaches_its_outputs_and_no_others(linear_driver, random_quantized, isa, scheme, inputs):
    n, k, rng = 17, 96, np.random.default_rng(6)
    driver = linear_driver(scheme, isa, inputs=inputs)
    packed = driver.pack(random_quantized(rng, n, k, scheme), n, k)
    x = rng.standard_normal((k + 1, k)).astype(np.float32)
    x[np.arange(k), np.arange(k)] = np.nan
    y = driver(packed, x, n)
    assert np.isnan(y[:k]).all()
    np.testing.assert_array_equal(y[k], driver(packed, x[k:], n)[0])


@pytest.mark.parametrize(("scheme", "inputs"), [(FP8, DYNAMIC), (GROUPED[-2], NONE)], ids=str)
def test_optimization_changes_no_bit(linear_driver, random_quantized, scheme, inputs):
    """Of weights that no optimized engine of the end-to-end tests has."""
    (n, k), rng = (33, 200), np.random.default_rng(7)
    weight, x = random_quantized(rng, n, k, scheme), make_rows(rng, 35, k)
    cases = [(n, k, ActivationFunction.NONE)]
    drivers = [linear_driver(scheme, inputs=inputs), linear_driver(scheme, Isa.AVX2, cases, inputs, level="-O3")]
    found = [driver(driver.pack(weight, n, k), x, n) for driver in drivers]
    np.testing.assert_array_equal(*found)


def test_bias_activation_and_residual(linear_driver):
    n, k, m = 37, 40, 7
    driver = linear_driver(FP32, Isa.AVX2, [(n, k, act) for act in ActivationFunction])
    rng = np.random.default_rng(3)
    weight, bias, x, residual = (rng.standard_normal(s).astype(np.float32) for s in ((n, k), (n,), (m, k), (m, n)))
    packed = driver.pack(weight, n, k)
    wide_x, wide_weight = x.astype(np.float64), weight.astype(np.float64)
    for act in ActivationFunction:
        for b in (None, bias):
            for r in (None, residual):
                expected = linear(wide_x, wide_weight, b, r, activation=act)
                actual = driver(packed, x, n, bias=b, residual=r, activation=act)
                np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=2e-5, err_msg=f"{act!r}")


def test_outputs_past_the_end_are_not_written(linear_driver):
    """The driver's y is NaN before the call and [M, N] exactly: a store past N would spoil the next row."""
    driver = linear_driver(FP32, Isa.AVX2, [(5, 3, ActivationFunction.NONE)])
    weight, x = np.ones((5, 3), np.float32), np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(driver(driver.pack(weight, 5, 3), x, 5), np.repeat(x.sum(1, keepdims=True), 5, 1))
