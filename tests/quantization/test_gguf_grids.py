"""Weights that a GGUF file held in groups of 32 are found again."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType, dequantize
from gguf import quantize as gguf_quantize
from hypothesis import given
from hypothesis import strategies as st

from enginesmith.quantization.rtn import quantize
from enginesmith.quantization.scheme import WeightScheme, WeightType

INT4, ZEROS, INT8 = (
    WeightScheme(WeightType.INT4, 32),
    WeightScheme(WeightType.INT4, 32, symmetric=False),
    WeightScheme(WeightType.INT8, 32),
)


@pytest.mark.parametrize(("name", "scheme"), [("Q4_0", INT4), ("Q4_0", ZEROS), ("Q8_0", INT8)])
@given(seed=st.integers(0, 999), spread=st.sampled_from([1e-3, 0.03, 2.0]), shift=st.sampled_from([0.0, 1.0, -4.0]))
def test_exactly(name: str, scheme: WeightScheme, seed: int, spread: float, shift: float) -> None:
    rng = np.random.default_rng(seed)
    w = ((rng.standard_normal((5, 96)) + shift) * spread).astype(np.float32)
    w[0, :32] = 0
    kind = GGMLQuantizationType[name]
    stored = dequantize(gguf_quantize(w, kind), kind)
    assert np.array_equal(quantize(stored, scheme).dequantize(32), stored)


def test_of_q4_1_but_for_the_rounding_of_its_zeros() -> None:
    """A minimum is a zero point of minimum / scale steps, to fp16: within 1/250 of a step where it is below 8."""
    w = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    kind = GGMLQuantizationType.Q4_1
    stored = dequantize(gguf_quantize(w, kind), kind)
    weight = quantize(stored, ZEROS)
    error = np.abs(weight.dequantize(32) - stored) / np.repeat(weight.scale, 32, axis=1)
    assert error.max() < 1 / 250
