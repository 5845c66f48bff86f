"""The gated MLP kernel against NumPy and against two linear layers."""

import ctypes

import ml_dtypes
import numpy as np
import pytest

from enginesmith.plugins.cpu.isa import Isa
from enginesmith.plugins.gated_mlp.reference import gated_mlp
from enginesmith.plugins.linear.activation_function import ActivationFunction
from enginesmith.plugins.linear.cpu.kernel import functor
from enginesmith.plugins.linear.cpu.packing import LinearLayout
from enginesmith.plugins.linear.reference import dequantize, fp8_activations, quantize_activations
from enginesmith.quantization.quantized import QuantizedWeight
from enginesmith.quantization.scheme import ActivationScheme, WeightScheme, WeightType

N, K = 45, 100
DRIVER = """
#include "gated_mlp/cpu/gated_mlp.h"
using namespace es;
using W = {weight};
template <class Act>
void run(const uint8_t* w, const float* x, const float* gate_bias, const float* up_bias, float* y, int64_t m,
         int threads) {{
  ThreadPool pool(threads);
  uint8_t* scratch =
      static_cast<uint8_t*>(std::aligned_alloc(64, gated_mlp_scratch_bytes<W, {n}, {k}>(m, threads) / 64 * 64 + 64));
  gated_mlp<W, {n}, {k}, Act>(pool, w, {{x, {k}}}, gate_bias, up_bias, {{y, {n}}}, m, scratch,
                                  {input_scale}f);
  std::free(scratch);
}}
extern "C" void call(int act, const uint8_t* w, const float* x, const float* gate_bias, const float* up_bias, float* y,
                     int64_t m, int threads) {{
  (act == 0 ? run<{acts[0]}> : run<{acts[1]}>)(w, x, gate_bias, up_bias, y, m, threads);
}}
"""
ACTIVATIONS = [ActivationFunction.SILU, ActivationFunction.GELU_TANH]


def make_source(rng, scheme):
    """A source of rows for packing and the float64 weight they stand for."""
    if scheme.type is WeightType.FP32:
        weight = rng.standard_normal((N, K)).astype(np.float32)
        return (lambda first, last: weight[first:last]), weight.astype(np.float64)
    if scheme.type is WeightType.FP8:
        weight = QuantizedWeight(
            rng.normal(0, 1, (N, K)).astype(ml_dtypes.float8_e4m3fn), rng.uniform(0.1, 0.3, (N, 1)).astype(np.float32)
        )
        return weight.rows, weight.dequantize(0).astype(np.float64)
    q = rng.integers(-8, 7, (N, K), dtype=np.int8, endpoint=True)
    scale = rng.uniform(0.01, 0.1, (N, scheme.groups(K))).astype(np.float16).astype(np.float32)
    zero = None if scheme.symmetric else rng.uniform(-8, 8, scale.shape).astype(np.float16).astype(np.float32)
    return QuantizedWeight(q, scale, zero).rows, dequantize(q, scale, scheme.group_size, zero)


INPUT_SCALE = 0.004  # of static inputs: the largest are beyond 448 of it
SCHEMES = [
    WeightScheme(WeightType.FP8),
    WeightScheme(WeightType.FP32),
    WeightScheme(WeightType.INT4, 64),
    WeightScheme(WeightType.INT4, 32, symmetric=False),
]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_gated_mlp(compile_kernel, scheme, activation):
    rng = np.random.default_rng(0)
    inputs = ActivationScheme.STATIC if scheme.type is WeightType.FP8 else ActivationScheme.NONE
    layout = LinearLayout(N, K, scheme, Isa.AVX2, gated=True, activation=inputs)
    acts = [functor(act) for act in ACTIVATIONS]
    source = DRIVER.format(weight=layout.cpp_type, n=N, k=K, acts=acts, input_scale=INPUT_SCALE)
    library = compile_kernel(source)
    (gate_rows, gate), (up_rows, up) = make_source(rng, scheme), make_source(rng, scheme)
    packed = np.empty(layout.nbytes, np.uint8)
    layout.pack(gate_rows, packed, up_rows)
    x = rng.standard_normal((50, K)).astype(np.float32)
    biases = [rng.standard_normal(N).astype(np.float32) for _ in range(2)]
    wide = x.astype(np.float64)
    if scheme.type is WeightType.FP8:
        wide = fp8_activations(x, inputs, INPUT_SCALE)
    if scheme.type is WeightType.INT4:
        wide = dequantize(*quantize_activations(x, scheme.group_size), scheme.group_size)

    def run(rows, bias, threads):
        y = np.full((len(rows), N), np.nan, np.float32)
        pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (packed, np.ascontiguousarray(rows), *bias, y)]
        if bias[0].size == 0:
            pointers[2:4] = [None, None]
        library.call(ACTIVATIONS.index(activation), *pointers, ctypes.c_int64(len(rows)), threads)
        return y

    for bias in (biases, [np.empty(0, np.float32)] * 2):
        given = bias if bias[0].size else [None, None]
        expected = gated_mlp(wide, gate, up, *given, activation=activation)
        alone = np.concatenate([run(row[None], bias, 1) for row in x])
        np.testing.assert_allclose(alone, expected, rtol=1e-4, atol=1e-4)
        for threads in (1, 2, 3):
            np.testing.assert_array_equal(run(x, bias, threads), alone)
