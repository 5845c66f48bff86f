// Sums of FP8 panels on AVX-512: widened to bf16, which holds them, to meet rows of bf16 as bf16 weights do.
#pragma once
#include "linear/cpu/float_avx512.h"

namespace es::avx512 {

// sums[R][32] += x[R][4 quads] * w, widened in registers.
template <int R>
ES_NOINLINE void fp8_tile(const uint8_t* w, const uint8_t* x, int64_t stride, int64_t quads, float* sums) {
  v512::Floats sum[R][2];
  for (int r = 0; r < R; r++)
    for (int h = 0; h < 2; h++) sum[r][h] = v512::load(sums + r * kPanel + h * kHalf);
  for (int64_t i = 0; i < quads; i++, w += 128) {
    ES_UNROLL for (int h = 0; h < 2; h++) {
      v512::Words pairs[2];
      _mm_prefetch(reinterpret_cast<const char*>(w + 64 * h) + 4096, _MM_HINT_T0);
      v512::load_fp8(w + 64 * h, pairs[0], pairs[1]);
      ES_UNROLL for (int r = 0; r < R; r++) ES_UNROLL for (int p = 0; p < 2; p++) {
        int32_t two;
        std::memcpy(&two, x + r * stride + 8 * i + 4 * p, 4);
        sum[r][h] = v512::dot_bf16(sum[r][h], pairs[p], v512::broadcast_word(two));
      }
    }
  }
  for (int r = 0; r < R; r++)
    for (int h = 0; h < 2; h++) v512::store(sums + r * kPanel + h * kHalf, sum[r][h]);
}

// 4 k a quad to steps of bf16 [half][2 quads][16][2].
ES_INLINE void unpack_fp8(const uint8_t* w, int64_t quads, uint8_t* out) {
  for (int h = 0; h < 2; h++)
    for (int64_t i = 0; i < quads; i++, out += 128) {
      v512::Words first, second;
      _mm_prefetch(reinterpret_cast<const char*>(w + 128 * i + 64 * h) + 4096, _MM_HINT_T0);
      v512::load_fp8(w + 128 * i + 64 * h, first, second);
      v512::store_words(out, first);
      v512::store_words(out + 64, second);
    }
}

struct Fp8Sums {
  template <class W>
  static void add(const uint8_t* panel, int64_t first, int64_t count, const Prepared<W>& x, int64_t row, int64_t rows,
                  float* sums) {
    const uint8_t *weights = panel + first * kPanel, *from = x.row(row, first);
    const int64_t quads = ceil_div(count, 4);
    std::fill(sums, sums + rows * kPanel, 0.0f);
    if (rows <= 2) {
      for_row_tiles<2>(rows, [&](auto tile, int64_t) { fp8_tile<tile>(weights, from, x.stride, quads, sums); });
      return;
    }
    alignas(64) uint8_t unpacked[kBlockK * 128];
    for (int64_t i = 0; i < quads; i += kBlockK / 2) {
      const int64_t n = std::min(kBlockK / 2, quads - i);
      unpack_fp8(weights + 128 * i, n, unpacked);
      for_row_tiles<6>(rows, [&](auto tile, int64_t r) {
        const uint8_t* tile_rows = from + r * x.stride + 8 * i;
        float_tile<Bf16Step, tile>(unpacked, 128 * n, tile_rows, x.stride, 2 * n, sums + r * kPanel);
      });
    }
  }
};

}  // namespace es::avx512
