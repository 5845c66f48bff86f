"""The embedding kernel against NumPy."""

import ctypes

import ml_dtypes
import numpy as np
import pytest

from enginesmith.plugins.embedding.reference import embedding

SHAPES = [(5, 1), (50, 24), (33, 67)]
DRIVER = """
#include "embedding/cpu/embedding.h"
using namespace es;
template <class E>
void call(ThreadPool& pool, int d, const uint8_t* table, const int32_t* ids, MutRows y, int64_t T) {{
{cases}
}}
extern "C" void run(int bf16, int threads, int d, const uint8_t* table, const int32_t* ids, float* y, int64_t T) {{
  ThreadPool pool(threads);
  bf16 ? call<Bf16>(pool, d, table, ids, {{y, d + 2}}, T) : call<Fp32>(pool, d, table, ids, {{y, d + 2}}, T);
}}
"""


@pytest.fixture(scope="module")
def library(compile_each):
    cases = "".join(f"  if (d == {d}) embedding<E, {n}, {d}>(pool, table, ids, y, T);\n" for n, d in SHAPES)
    return compile_each(DRIVER.format(cases=cases))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_matches_the_reference(library, n, d, dtype):
    rng = np.random.default_rng(0)
    table = rng.standard_normal((n, d)).astype(dtype)
    ids = rng.integers(0, n, 700).astype(np.int32)
    ids[[3, 4, 5, 6]] = -1, n, 0, n - 1
    y = np.full((len(ids), d + 2), 7, np.float32)
    library.run(
        int(dtype is not np.float32), 3, d, *(ctypes.c_void_p(a.ctypes.data) for a in (table, ids, y)),
        ctypes.c_int64(len(ids)),
    )  # fmt: skip
    np.testing.assert_array_equal(y[:, :d], embedding(table, ids))
    assert (y[:, d:] == 7).all()
