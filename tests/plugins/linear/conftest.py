"""Runs linear kernels over many shapes: one driver a weight type holds them all; packed weights come from Python."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

from enginesmith.plugins.cpu.isa import Isa
from enginesmith.plugins.linear.activation_function import ActivationFunction
from enginesmith.plugins.linear.cpu.kernel import functor
from enginesmith.plugins.linear.cpu.packing import LinearLayout
from enginesmith.quantization.quantized import QuantizedWeight
from enginesmith.quantization.scheme import ActivationScheme, WeightScheme, WeightType

EMULATED_SHAPES = [(7, 1), (17, 96), (3, 300), (33, 200), (64, 31)]
SHAPES = [*EMULATED_SHAPES, (1, 8), (16, 31), (33, 32), (33, 1000), (64, 576), (576, 96)]

INPUT_SCALE = 0.03

DRIVER = """
#include "linear/cpu/linear.h"
using namespace es;
using W = {weight};
template <int N, int K, class Act>
int run(const uint8_t* w, const float* x, const float* bias, const float* residual, float* y, int64_t m, int threads,
        float input_scale) {{
  ThreadPool pool(threads);
  const int64_t bytes = linear_scratch_bytes<W, N, K>(m, threads);
  uint8_t* scratch = static_cast<uint8_t*>(std::aligned_alloc(64, bytes + 64));
  linear<W, N, K, Act>(pool, w, {{x, K + 3}}, bias, {{residual, N}}, {{y, N}}, m, scratch, input_scale);
  std::free(scratch);
  return 0;
}}
extern "C" int64_t weight_size(int n, int k) {{ return weight_bytes<W>(n, k); }}
extern "C" int call(int n, int k, int act, const uint8_t* w, const float* x, const float* bias, const float* residual,
                    float* y, int64_t m, int threads, float input_scale) {{
{cases}
  return 1;
}}
"""


def _random_quantized(rng: np.random.Generator, n: int, k: int, scheme: WeightScheme) -> QuantizedWeight:
    """Quantized weights with the extremes in them, and whole and fractional zeros; of FP8 every number."""
    if scheme.type is WeightType.FP8:
        bits = rng.integers(0, 127, (n, k), dtype=np.uint8) | rng.choice([0, 128], (n, k)).astype(np.uint8)
        scale = rng.uniform(0.001, 0.02, (n, scheme.groups(k))).astype(np.float32)
        return QuantizedWeight(bits.view(ml_dtypes.float8_e4m3fn), scale)
    low, high = (-8, 7) if scheme.type is WeightType.INT4 else (-128, 127)  # -128 as GPTQ has it
    q = rng.integers(low, high, (n, k), dtype=np.int8, endpoint=True)
    q[0] = low
    scale = rng.uniform(0.001, 0.02, (n, scheme.groups(k))).astype(np.float16).astype(np.float32)
    if scheme.symmetric:
        return QuantizedWeight(q, scale)
    zero = rng.uniform(-9, 9, scale.shape).astype(np.float16).astype(np.float32)
    zero[::2] = np.rint(zero[::2])
    return QuantizedWeight(q, scale, zero)


def aligned(nbytes: int) -> np.ndarray:
    """uint8 [nbytes] at a 64-byte boundary, filled with 0xff so that a byte left out shows."""
    raw = np.full(nbytes + 64, 0xFF, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


@dataclass(frozen=True)
class LinearDriver:
    """A compiled driver of one weight scheme on one (perhaps emulated) instruction set; `inputs` are rounded so."""

    library: ctypes.CDLL
    scheme: WeightScheme
    isa: Isa
    inputs: ActivationScheme = ActivationScheme.NONE
    input_scale: float = INPUT_SCALE

    def pack(self, weight, n: int, k: int) -> np.ndarray:
        layout = LinearLayout(n, k, self.scheme, self.isa)
        out = aligned(layout.nbytes)
        if isinstance(weight, QuantizedWeight):
            layout.pack(weight.rows, out)
        else:
            layout.pack(lambda first, last: weight[first:last], out)
        assert self.library.weight_size(n, k) == layout.nbytes
        return out

    def __call__(
        self,
        packed: np.ndarray,
        x: np.ndarray,
        n: int,
        bias: np.ndarray | None = None,
        residual: np.ndarray | None = None,
        activation: ActivationFunction = ActivationFunction.NONE,
        threads: int = 1,
    ) -> np.ndarray:
        """y float32 [M, n] for x float32 [M, K]; rows of x lie K + 3 floats apart, with NaN in between."""
        m, k = x.shape
        wide = np.full((m, k + 3), np.nan, np.float32)
        wide[:, :k] = x
        y = np.full((m, n), np.nan, np.float32)

        def address(a: np.ndarray | None) -> ctypes.c_void_p:
            return ctypes.c_void_p(None if a is None else a.ctypes.data)

        act = list(ActivationFunction).index(activation)
        failed = self.library.call(
            n,
            k,
            act,
            address(packed),
            address(wide),
            address(bias),
            address(residual),
            address(y),
            ctypes.c_int64(m),
            threads,
            ctypes.c_float(self.input_scale),
        )
        assert failed == 0, f"the driver has no case for {n} x {k} {activation}"
        return y


@pytest.fixture(scope="session")
def linear_driver(compile_kernel: Callable[..., ctypes.CDLL]) -> Callable[..., LinearDriver]:
    """linear_driver(scheme, isa, cases, inputs, native, level): `isa` above AVX2 is emulated unless `native`; cases are
    (n, k, activation); `level` of optimization."""

    def build(
        scheme: WeightScheme,
        isa: Isa = Isa.AVX2,
        cases: list[tuple[int, int, ActivationFunction]] | None = None,
        inputs: ActivationScheme = ActivationScheme.NONE,
        *,
        native: bool = False,
        level: str | None = None,
    ) -> LinearDriver:
        emulated = isa is not Isa.AVX2 and not native
        shapes = EMULATED_SHAPES if emulated else SHAPES
        cases = cases or [(n, k, ActivationFunction.NONE) for n, k in shapes]
        lines = [
            f"  if (n == {n} && k == {k} && act == {list(ActivationFunction).index(act)}) "
            f"return run<{n}, {k}, {functor(act)}>(w, x, bias, residual, y, m, threads, input_scale);"
            for n, k, act in cases
        ]
        cpp_type = LinearLayout(1, 1, scheme, isa, activation=inputs).cpp_type
        source = DRIVER.format(weight=cpp_type, cases="\n".join(lines))
        options = {"level": level} if level else {}
        library = compile_kernel(source, isa if native else Isa.AVX2, isa if emulated else None, **options)
        library.weight_size.restype = ctypes.c_int64
        return LinearDriver(library, scheme, isa, inputs)

    return build


@pytest.fixture(scope="session")
def random_quantized() -> Callable[..., QuantizedWeight]:
    return _random_quantized


@pytest.fixture(scope="session")
def shapes() -> Callable[..., list[tuple[int, int]]]:
    """shapes(isa, native): those (n, k) that drivers have without being told others."""
    return lambda isa, native=False: SHAPES if isa is Isa.AVX2 or native else EMULATED_SHAPES
