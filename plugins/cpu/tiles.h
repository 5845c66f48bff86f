// The shape of matrix work on a CPU: weights lie in panels of 32 outputs, rows are taken in blocks and tiles.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cpu/thread_pool.h"

#define ES_INLINE inline __attribute__((always_inline))
#define ES_NOINLINE __attribute__((noinline))
#define ES_INLINE_LAMBDA __attribute__((always_inline))
#define ES_UNROLL _Pragma("GCC unroll 16")

namespace es {

enum class MatrixIsa { kAvx2, kAvx512, kAmx };

// ES_EMULATE_AVX512 and ES_EMULATE_AMX replace the instructions by plain C++, to test kernels where they are missing.
#if (defined(__AMX_INT8__) && defined(__AMX_BF16__)) || defined(ES_EMULATE_AMX)
constexpr MatrixIsa kMatrixIsa = MatrixIsa::kAmx;
#elif (defined(__AVX512VNNI__) && defined(__AVX512BF16__)) || defined(ES_EMULATE_AVX512)
constexpr MatrixIsa kMatrixIsa = MatrixIsa::kAvx512;
#else
constexpr MatrixIsa kMatrixIsa = MatrixIsa::kAvx2;
#endif

constexpr int kPanel = 32;                                         // outputs in a panel
constexpr int kHalf = 16;                                          // outputs in each of its two halves
constexpr int kBf16Pad = kMatrixIsa == MatrixIsa::kAvx2 ? 1 : 32;  // bf16 weights are padded to this along K
constexpr int64_t kRowBlock = 96;                                  // rows that share one pass over a panel

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// Cuts `rows` into even tiles of at most Max rows: f(std::integral_constant<int, rows>, first row).
template <int Max, class F>
ES_INLINE void for_row_tiles(int64_t rows, F&& f) {
  static_assert(Max <= 6);
  const int64_t tiles = ceil_div(rows, Max);
  for (int64_t t = 0; t < tiles; t++) {
    const int64_t first = rows * t / tiles;
    switch (rows * (t + 1) / tiles - first) {
      case 1:
        f(std::integral_constant<int, 1>{}, first);
        break;
      case 2:
        f(std::integral_constant<int, std::min(2, Max)>{}, first);
        break;
      case 3:
        f(std::integral_constant<int, std::min(3, Max)>{}, first);
        break;
      case 4:
        f(std::integral_constant<int, std::min(4, Max)>{}, first);
        break;
      case 5:
        f(std::integral_constant<int, std::min(5, Max)>{}, first);
        break;
      case 6:
        f(std::integral_constant<int, std::min(6, Max)>{}, first);
        break;
    }
  }
}

// Spreads row blocks times panels over the pool: f(panel, first row, rows). Neighbouring panels go to one task, so
// that a thread streams; row blocks go one after the other, so that their activations stay in cache.
template <class F>
void for_panels(ThreadPool& pool, int64_t panels, int64_t panel_bytes, int64_t rows, F&& f) {
  const int64_t blocks = ceil_div(rows, kRowBlock);
  const int64_t fair = panels * blocks / (8 * pool.threads());
  const int64_t enough = ceil_div(256 << 10, panel_bytes);
  const int64_t per_task = std::max<int64_t>(1, std::min(fair, enough));
  const int64_t tasks = ceil_div(panels, per_task);
  pool.run(blocks * tasks, [&](int64_t task, int) {
    const int64_t block = task / tasks, begin = task % tasks * per_task;
    const int64_t first = rows * block / blocks, last = rows * (block + 1) / blocks;
    for (int64_t p = begin; p < std::min(begin + per_task, panels); p++) f(p, first, last - first);
  });
}

}  // namespace es
