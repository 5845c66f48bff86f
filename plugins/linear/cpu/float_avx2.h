// fp32 and bf16 panels on AVX2: one FMA accumulator an output, k ascending, so that tiles never change a result.
#pragma once
#include <immintrin.h>

#include "linear/cpu/float_rows.h"

namespace es::avx2 {

constexpr int64_t kStreamRows = 18;  // more rows share weights that are unpacked once
constexpr int64_t kBlockK = 256;     // 16 KB of unpacked weights: half of a first-level cache

ES_INLINE void load16(const float* w, __m256& low, __m256& high) {
  low = _mm256_loadu_ps(w);
  high = _mm256_loadu_ps(w + 8);
}
ES_INLINE void load16(const uint16_t* w, __m256& low, __m256& high) {
  const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
  low = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
  high = _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}

// acc[R][32] += x[R][k] * w, over H halves that lie `half` elements apart.
template <int R, int H, class E>
ES_NOINLINE void float_tile(const E* w, int64_t half, const float* x, int64_t stride, int64_t k, float* acc) {
  __m256 sum[R][2 * H];
  for (int r = 0; r < R; r++)
    for (int v = 0; v < 2 * H; v++) sum[r][v] = _mm256_loadu_ps(acc + r * kPanel + 8 * v);
#pragma GCC unroll 4
  for (int64_t i = 0; i < k; i++) {
    __m256 weight[2 * H];
    for (int h = 0; h < H; h++) {
      _mm_prefetch(reinterpret_cast<const char*>(w + h * half + i * kHalf) + 2048, _MM_HINT_T0);
      load16(w + h * half + i * kHalf, weight[2 * h], weight[2 * h + 1]);
    }
    for (int r = 0; r < R; r++) {
      const __m256 xi = _mm256_set1_ps(x[r * stride + i]);
      for (int v = 0; v < 2 * H; v++) sum[r][v] = _mm256_fmadd_ps(xi, weight[v], sum[r][v]);
    }
  }
  for (int r = 0; r < R; r++)
    for (int v = 0; v < 2 * H; v++) _mm256_storeu_ps(acc + r * kPanel + 8 * v, sum[r][v]);
}

ES_INLINE const float* unpack(const float* w, int64_t, float*) { return w; }
ES_INLINE const float* unpack(const uint16_t* w, int64_t k, float* buffer) {
  for (int64_t i = 0; i < k; i++) {
    __m256 low, high;
    load16(w + i * kHalf, low, high);
    _mm256_store_ps(buffer + i * kHalf, low);
    _mm256_store_ps(buffer + i * kHalf + 8, high);
  }
  return buffer;
}

// Few rows stream the panel as it lies: both halves at once while their sums fit in registers.
template <class E>
void float_stream(const E* panel, int64_t k, Rows x, int64_t rows, float* acc) {
  const int64_t half = k * kHalf;
  if (rows <= 2) {
    for_row_tiles<2>(rows, [&](auto tile, int64_t r) { float_tile<tile, 2>(panel, half, x.row(r), x.stride, k, acc); });
    return;
  }
  for (int h = 0; h < 2; h++)
    for_row_tiles<6>(rows, [&](auto tile, int64_t r) {
      float_tile<tile, 1>(panel + h * half, 0, x.row(r), x.stride, k, acc + r * kPanel + h * kHalf);
    });
}

// acc[rows][32] = x * panel.
template <class E>
ES_NOINLINE void float_panel(const E* panel, int64_t k, Rows x, int64_t rows, float* acc) {
  std::fill(acc, acc + rows * kPanel, 0.0f);
  if (rows <= 6) return float_stream(panel, k, x, rows, acc);
  alignas(64) float buffer[kBlockK * kHalf];
  for (int h = 0; h < 2; h++)
    for (int64_t first = 0; first < k; first += kBlockK) {
      const int64_t n = std::min(kBlockK, k - first);
      const E* packed = panel + h * k * kHalf + first * kHalf;
      const auto tiles = [&](const auto* w) {
        for_row_tiles<6>(rows, [&](auto tile, int64_t r) {
          float_tile<tile, 1>(w, 0, x.row(r) + first, x.stride, n, acc + r * kPanel + h * kHalf);
        });
      };
      if (rows <= kStreamRows)
        tiles(packed);
      else
        tiles(unpack(packed, n, buffer));
    }
}

}  // namespace es::avx2
