"""The kernel of mixtures of experts against NumPy, and rows alone against rows together."""

import ctypes
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

from enginesmith.plugins.cpu.isa import Isa
from enginesmith.plugins.experts.gate import Gate
from enginesmith.plugins.experts.reference import experts
from enginesmith.plugins.linear.activation_function import ActivationFunction
from enginesmith.plugins.linear.cpu.kernel import functor
from enginesmith.plugins.linear.cpu.packing import LinearLayout
from enginesmith.quantization.quantized import QuantizedWeight
from enginesmith.quantization.scheme import WeightScheme, WeightType

E, ACTIVE, H, I = 5, 2, 72, 40  # noqa: E741
ROWS = 230  # of which an expert gets a block and more


@dataclass(frozen=True)
class Case:
    scheme: WeightScheme
    gate: Gate
    biases: bool
    tolerance: float  # of the outputs' spread: what rounding inputs costs

    @property
    def layouts(self) -> tuple[LinearLayout, LinearLayout]:
        return (
            LinearLayout(I, H, self.scheme, Isa.AVX2, gated=self.gate.gated),
            LinearLayout(H, I, self.scheme, Isa.AVX2),
        )


SILU = Gate(ActivationFunction.SILU)
CASES = {
    "fp32": Case(WeightScheme(WeightType.FP32), SILU, False, 1e-6),
    "fp32-limit": Case(WeightScheme(WeightType.FP32), Gate(ActivationFunction.QUICK_GELU, 1.5, 1.0), True, 1e-6),
    "fp32-ungated": Case(WeightScheme(WeightType.FP32), Gate(ActivationFunction.RELU2, gated=False), True, 1e-6),
    "bf16": Case(WeightScheme(WeightType.BF16), SILU, True, 1e-6),
    "fp8": Case(WeightScheme(WeightType.FP8), SILU, False, 1e-6),
    "int8": Case(WeightScheme(WeightType.INT8), SILU, True, 1e-3),
    "int4-zeros": Case(WeightScheme(WeightType.INT4, 32, symmetric=False), SILU, False, 0.05),
}
DRIVER = """
#include "experts/cpu/experts.h"
using namespace es;
template <class Kernel>
void run(const ExpertsWeights& w, const float* x, const int32_t* indices, const float* weights, float* y, int64_t m,
         int threads) {
  ThreadPool pool(threads);
  auto* scratch = static_cast<uint8_t*>(std::aligned_alloc(64, round_up(Kernel::scratch_bytes(m), 64)));
  Kernel::run(pool, w, {x, %(h)d}, indices, %(active)d, {weights, %(active)d}, {y, %(h)d}, m, scratch);
  std::free(scratch);
}
extern "C" void call(int which, const uint8_t* up, const uint8_t* down, const float* gate_bias, const float* up_bias,
                     const float* down_bias, float limit, float offset, const float* x, const int32_t* indices,
                     const float* weights, float* y, int64_t m, int threads) {
  const ExpertsWeights w{up, down, gate_bias, up_bias, down_bias, limit, offset};
%(cases)s
}
"""


@pytest.fixture(scope="module")
def library(compile_kernel):
    lines = []
    for number, case in enumerate(CASES.values()):
        up, down = case.layouts
        types = f"{up.cpp_type}, {down.cpp_type}, {functor(case.gate.activation)}, {str(case.gate.gated).lower()}"
        kernel = f"Experts<{types}, {E}, {ACTIVE}, {H}, {I}>"
        lines.append(f"  if (which == {number}) run<{kernel}>(w, x, indices, weights, y, m, threads);")
    return compile_kernel(DRIVER % {"h": H, "active": ACTIVE, "cases": "\n".join(lines)})


def source_of(rng, scheme, n, k):
    """A source of rows for packing, and the float64 matrix that they stand for."""
    if not scheme.type.is_scaled:
        weight = rng.standard_normal((n, k)).astype(ml_dtypes.bfloat16).astype(np.float32) / 4
        return (lambda first, last: weight[first:last]), weight.astype(np.float64)
    scale = rng.uniform(0.01, 0.1, (n, scheme.groups(k))).astype(np.float16).astype(np.float32)
    if scheme.type is WeightType.FP8:
        weight = QuantizedWeight(rng.normal(0, 1, (n, k)).astype(ml_dtypes.float8_e4m3fn), scale)
    else:
        largest = 2 ** (scheme.type.bits - 1)
        zero = None if scheme.symmetric else rng.uniform(-4, 4, scale.shape).astype(np.float16).astype(np.float32)
        q = rng.integers(-largest + 1, largest, (n, k), dtype=np.int8)
        weight = QuantizedWeight(q, scale if scheme.type is WeightType.INT4 else scale / 16, zero)
    return weight.rows, weight.dequantize(scheme.group_size).astype(np.float64)


class Mixture:
    """Random weights of a case, packed, and the same in float64."""

    def __init__(self, rng, case):
        self.case = case
        packed = [np.empty((E, layout.nbytes), np.uint8) for layout in case.layouts]
        matrices: list[list[np.ndarray]] = [[], [], []]
        for expert in range(E):
            sources = [source_of(rng, case.scheme, *shape) for shape in ((I, H), (I, H), (H, I))]
            (gate, up, down) = (rows for rows, _ in sources)
            case.layouts[0].pack(*((gate, packed[0][expert], up) if case.gate.gated else (up, packed[0][expert])))
            case.layouts[1].pack(down, packed[1][expert])
            for matrix, (_, values) in zip(matrices, sources, strict=True):
                matrix.append(values)
        self.packed = packed
        self.gate, self.up, self.down = (np.stack(matrix) for matrix in matrices)
        biases = [rng.standard_normal((E, n)).astype(np.float32) for n in (I, I, H)]
        self.biases = biases if case.biases else [None, None, None]

    def run(self, library, x, indices, weights, threads):
        y = np.full((len(x), H), np.nan, np.float32)
        arrays = [np.ascontiguousarray(a) for a in (x, indices, weights)]
        pointers = [
            None if a is None else a.ctypes.data_as(ctypes.c_void_p) for a in (*self.packed, *self.biases, *arrays, y)
        ]
        gate = self.case.gate
        factors = ctypes.c_float(gate.limit), ctypes.c_float(gate.up_offset)
        which = list(CASES.values()).index(self.case)
        library.call(which, *pointers[:5], *factors, *pointers[5:], ctypes.c_int64(len(x)), threads)
        return y

    def expected(self, x, indices, weights):
        gate = self.gate if self.case.gate.gated else None
        return experts(x, indices, weights, gate, self.up, self.down, *self.biases, function=self.case.gate)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_experts(library, case):
    rng = np.random.default_rng(0)
    mixture = Mixture(rng, case)
    x = rng.standard_normal((ROWS, H)).astype(np.float32)
    popularity = [0.6, 0.2, 0.1, 0.1, 0.0]  # one expert has more rows than a block, one has none
    indices = np.stack([rng.choice(E, ACTIVE, replace=False, p=popularity) for _ in x]).astype(np.int32)
    weights = rng.uniform(0.1, 1, (ROWS, ACTIVE)).astype(np.float32)
    expected = mixture.expected(x.astype(np.float64), indices, weights)

    together = mixture.run(library, x, indices, weights, 1)
    assert np.abs(together - expected).max() < case.tolerance * np.ptp(expected)
    for threads in (2, 3):
        np.testing.assert_array_equal(mixture.run(library, x, indices, weights, threads), together)
    for rows in ([0], [7], [3, 4], [*range(50, 60)]):
        few = mixture.run(library, x[rows], indices[rows], weights[rows], 2)
        np.testing.assert_array_equal(few, together[rows])


def test_an_index_that_no_expert_has_adds_nothing(library):
    rng = np.random.default_rng(1)
    mixture = Mixture(rng, CASES["fp32"])
    x = rng.standard_normal((3, H)).astype(np.float32)
    indices = np.array([[E, 1], [-1, 2**31 - 1], [4, 4]], np.int32)
    weights = np.ones((3, ACTIVE), np.float32)
    expected = mixture.expected(x.astype(np.float64), indices, weights)
    assert not expected[1].any()
    for rows in ([0, 1, 2], [0], [1], [2]):
        found = mixture.run(library, x[rows], indices[rows], weights[rows], 2)
        np.testing.assert_allclose(found, expected[rows], rtol=1e-4, atol=1e-4)
