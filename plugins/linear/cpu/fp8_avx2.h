// Sums of FP8 panels on AVX2, in float32: one FMA accumulator an output, k ascending, for every number of rows.
#pragma once
#include "linear/cpu/float_avx2.h"

namespace es::avx2 {

// 16 E4M3 bytes to floats of 2^-8 of their values: shifted into fp16, subnormals too, they are that.
ES_INLINE void load_fp8(const uint8_t* w, __m256& low, __m256& high) {
  const __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w)));
  const __m256i halves = _mm256_and_si256(_mm256_slli_epi16(words, 7), _mm256_set1_epi16(static_cast<int16_t>(0xbfff)));
  low = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
  high = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
}

// sums[R][32] += x[R][k] * w, both halves in registers.
template <int R>
ES_NOINLINE void fp8_tile(const uint8_t* w, Rows x, int64_t k, float* sums) {
  __m256 sum[R][4];
  for (int r = 0; r < R; r++)
    for (int v = 0; v < 4; v++) sum[r][v] = _mm256_loadu_ps(sums + r * kPanel + 8 * v);
  const auto step = [&](const uint8_t* line, int64_t i) ES_INLINE_LAMBDA {
    __m256 weight[4];
    load_fp8(line, weight[0], weight[1]);
    load_fp8(line + 64, weight[2], weight[3]);
    ES_UNROLL for (int r = 0; r < R; r++) {
      const __m256 xi = _mm256_set1_ps(x.row(r)[i]);
      ES_UNROLL for (int v = 0; v < 4; v++) sum[r][v] = _mm256_fmadd_ps(xi, weight[v], sum[r][v]);
    }
  };
  int64_t i = 0;
  for (; i + 4 <= k; i += 4, w += 128) {
    _mm_prefetch(reinterpret_cast<const char*>(w) + 4096, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(w) + 4160, _MM_HINT_T0);
    ES_UNROLL for (int j = 0; j < 4; j++) step(w + 16 * j, i + j);
  }
  for (; i < k; i++, w += 16) step(w, i);
  for (int r = 0; r < R; r++)
    for (int v = 0; v < 4; v++) _mm256_storeu_ps(sums + r * kPanel + 8 * v, sum[r][v]);
}

// k of one half to floats [k][16].
ES_INLINE void unpack_fp8(const uint8_t* w, int64_t k, float* buffer) {
  for (int64_t i = 0; i < k; i++) {
    __m256 low, high;
    load_fp8(w + i / 4 * 128 + i % 4 * 16, low, high);
    _mm256_store_ps(buffer + i * kHalf, low);
    _mm256_store_ps(buffer + i * kHalf + 8, high);
  }
}

struct Fp8Sums {
  template <class W>
  static void add(const uint8_t* panel, int64_t first, int64_t count, const Prepared<W>& x, int64_t row, int64_t rows,
                  float* sums) {
    const uint8_t* weights = panel + first * kPanel;
    const Rows from{reinterpret_cast<const float*>(x.row(row, first)), x.stride / 4};
    std::fill(sums, sums + rows * kPanel, 0.0f);
    if (rows <= 2) {
      for_row_tiles<2>(rows, [&](auto tile, int64_t) { fp8_tile<tile>(weights, from, count, sums); });
      return;
    }
    alignas(64) float buffer[kBlockK * kHalf];
    for (int h = 0; h < 2; h++)
      for (int64_t at = 0; at < count; at += kBlockK) {
        const int64_t n = std::min(kBlockK, count - at);
        unpack_fp8(weights + at * kPanel + 64 * h, n, buffer);
        for_row_tiles<6>(rows, [&](auto tile, int64_t r) {
          float_tile<tile, 1>(buffer, 0, from.row(r) + at, from.stride, n, sums + r * kPanel + h * kHalf);
        });
      }
  }
};

}  // namespace es::avx2
