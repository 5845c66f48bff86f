"""Linear kernels against NumPy, over weight types, odd sizes, numbers of rows and threads."""

import numpy as np
import pytest
from enginesmith.plugins.cpu.isa import Isa
from enginesmith.plugins.linear.activation import Activation
from enginesmith.plugins.linear.panels import round_to_bf16
from enginesmith.plugins.linear.reference import linear, quantized_linear
from enginesmith.quantization.scheme import WeightScheme, WeightType

FP32, BF16 = WeightScheme(WeightType.FP32), WeightScheme(WeightType.BF16)
INTEGERS = [WeightScheme(WeightType.INT8), WeightScheme(WeightType.INT4)] + [
    WeightScheme(kind, group) for kind in (WeightType.INT8, WeightType.INT4) for group in (24, 32, 64, 128)
]
SCHEMES = [FP32, BF16, *INTEGERS]
ROWS = [*range(1, 21), 64, 131]


def as_bf16(x: np.ndarray) -> np.ndarray:
    return (round_to_bf16(x).astype(np.uint32) << 16).view(np.float32)


def make_weight(rng, n, k, scheme, random_quantized):
    if scheme.type in (WeightType.INT8, WeightType.INT4):
        return random_quantized(rng, n, k, scheme)
    weight = rng.standard_normal((n, k)).astype(np.float32)
    return as_bf16(weight) if scheme.type is WeightType.BF16 else weight


def expected_product(x, weight, scheme, isa=Isa.AVX2):
    """x W^T in float64, and a bound of its terms that errors are measured against."""
    if isinstance(weight, tuple):
        exact = quantized_linear(x, *weight, scheme.group_size)
        bound = quantized_linear(np.abs(x), np.abs(weight[0].astype(np.int16)), weight[1], scheme.group_size)
        return exact, bound
    if scheme.type is WeightType.BF16 and isa is not Isa.AVX2:
        x = as_bf16(x)
    x, w = x.astype(np.float64), weight.astype(np.float64)
    return linear(x, w), linear(np.abs(x), np.abs(w))


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_matches_reference_and_rows_are_independent(linear_driver, random_quantized, shapes, scheme):
    driver = linear_driver(scheme)
    rng = np.random.default_rng(0)
    for n, k in shapes:
        weight = make_weight(rng, n, k, scheme, random_quantized)
        packed = driver.pack(weight, n, k)
        x = (rng.standard_normal((max(ROWS), k)) * rng.uniform(0.1, 10, (max(ROWS), 1))).astype(np.float32)
        exact, bound = expected_product(x, weight, scheme)
        alone = np.concatenate([driver(packed, x[i : i + 1], n) for i in range(len(x))])
        assert np.all(np.abs(alone - exact) <= 2e-6 * bound + 1e-30), f"{n} x {k}"
        for m in ROWS:
            np.testing.assert_array_equal(driver(packed, x[:m], n), alone[:m], err_msg=f"{n} x {k}, {m} rows")
        for threads in (2, 3):
            np.testing.assert_array_equal(driver(packed, x, n, threads=threads), alone)
