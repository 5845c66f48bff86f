"""Lookups in the packed weight of a head against NumPy, for the layout of every instruction set."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from enginesmith.plugins.cpu.isa import Isa
from enginesmith.plugins.embedding.reference import packed_embedding
from enginesmith.plugins.linear.cpu.packing import LinearLayout
from enginesmith.quantization.quantized import QuantizedWeight
from enginesmith.quantization.scheme import WeightScheme, WeightType

GAP = 2  # floats between rows of the result
N = 100  # three panels, and a fourth that is not full
WIDTHS = (1, 63, 64, 97, 200, 576)
GROUPS = (0, 24, 32, 64, 128)
DRIVER = """
#include "embedding/cpu/embedding.h"
using namespace es;
extern "C" int run(int group, int k, int threads, const uint8_t* weight, const int32_t* ids, float* y, int64_t T) {{
  ThreadPool pool(threads);
{cases}
  return 1;
}}
"""


@dataclass(frozen=True)
class Driver:
    """The kernel of every width and group, on one (perhaps emulated) instruction set."""

    library: ctypes.CDLL
    isa: Isa

    def __call__(self, weight: QuantizedWeight, group: int, ids: np.ndarray, threads: int = 1) -> np.ndarray:
        n, k = weight.q.shape
        layout = LinearLayout(n, k, WeightScheme(WeightType.INT8, group), self.isa)
        packed, y = np.empty(layout.nbytes, np.uint8), np.full((len(ids), k + GAP), 7, np.float32)
        layout.pack(weight.rows, packed)
        arrays = (ctypes.c_void_p(a.ctypes.data) for a in (packed, ids, y))
        assert self.library.run(group, k, threads, *arrays, ctypes.c_int64(len(ids))) == 0
        assert (y[:, k:] == 7).all()
        return y[:, :k]


@pytest.fixture(scope="module", params=list(Isa))
def lookup(request: pytest.FixtureRequest, compile_kernel: Callable[..., ctypes.CDLL]) -> Driver:
    emulated = None if request.param is Isa.AVX2 else request.param
    cases = "\n".join(
        f"  if (group == {group} && k == {k}) "
        f"return packed_embedding<Int8Weight<{group}>, {N}, {k}>(pool, weight, ids, {{y, k + {GAP}}}, T), 0;"
        for group in GROUPS
        for k in WIDTHS
    )
    return Driver(compile_kernel(DRIVER.format(cases=cases), emulated=emulated), request.param)


def random_weight(k: int, group: int) -> QuantizedWeight:
    """With the extremes of q in it, and, in groups, scales down to the least that fp16 has."""
    rng = np.random.default_rng(k)
    q = rng.integers(-128, 127, (N, k), dtype=np.int8, endpoint=True)
    q[0], q[-1] = -128, 127
    scale = rng.uniform(1e-3, 2e-2, (N, -(-k // group) if group else 1)).astype(np.float32)
    if group:
        scale = scale.astype(np.float16).astype(np.float32)
        scale[1] = 2.0**-24
    return QuantizedWeight(q, scale)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("k", WIDTHS)
def test_every_row_is_that_of_the_reference(lookup: Driver, k: int, group: int) -> None:
    weight, ids = random_weight(k, group), np.arange(N, dtype=np.int32)[::-1].copy()
    np.testing.assert_array_equal(lookup(weight, group, ids), packed_embedding(weight, group, ids))


@pytest.mark.parametrize("group", GROUPS)
def test_ids_outside_of_the_weight_give_nan(lookup: Driver, group: int) -> None:
    """Those between the last row and the end of its panel too, which hold zeros."""
    weight = random_weight(97, group)
    ids = np.array([-(2**31), -1, 0, 31, 32, N - 1, N, N + 1, 127, 128, 2**31 - 1], np.int32)
    found = lookup(weight, group, ids)
    np.testing.assert_array_equal(found, packed_embedding(weight, group, ids))
    assert np.isnan(found).all(axis=1).tolist() == [i < 0 or i >= N for i in ids.tolist()]


def test_threads_change_nothing(lookup: Driver) -> None:
    weight, ids = random_weight(576, 64), np.random.default_rng(0).integers(-1, N + 1, 500).astype(np.int32)
    np.testing.assert_array_equal(lookup(weight, 64, ids, threads=3), packed_embedding(weight, 64, ids))
