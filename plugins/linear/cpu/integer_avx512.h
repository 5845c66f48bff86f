// int8 and int4 panels on AVX-512 VNNI: weights are unsigned (shifted by 128 or 8) and sums begin at the correction.
// Where inputs are of two bytes, each has sums of its own.
#pragma once
#include "cpu/avx512.h"
#include "linear/cpu/prepare.h"

namespace es::avx512 {

// The sum over inputs 128 * high + low. What wraps on the way comes back, for the sum itself fits.
ES_INLINE v512::Words join_planes(v512::Words high, v512::Words low) { return v512::add(v512::times_128(high), low); }

// Scales and zero points of 16 outputs of a group.
template <class W>
struct HalfScales {
  v512::Floats scale, zero;

  ES_INLINE explicit HalfScales(const uint8_t* scales) {
    if constexpr (!W::kPerChannel) scale = v512::load_fp16(scales);
    if constexpr (W::kZeros) zero = v512::load_fp16(scales + 2 * kPanel);
  }
  // acc[16] += float(sum) * (xscale * wscale) for group g of a row: the expression that every instruction set shares.
  // With zero points, fma(zero, -sum of x, sum) replaces the sum.
  ES_INLINE void add(v512::Words sum, const Prepared<W>& x, int64_t row, int64_t g, float* acc) const {
    v512::Floats both = v512::broadcast(x.scale(row, g)), value = v512::to_floats(sum);
    if constexpr (!W::kPerChannel) both = v512::mul(both, scale);
    if constexpr (W::kZeros) value = v512::fma(zero, v512::broadcast(x.minus_sum(row, g)), value);
    v512::store(acc, v512::fma(value, both, v512::load(acc)));
  }
};

// acc[rows][32] *= the panel's scales, one a channel.
ES_INLINE void scale_channels(const uint8_t* scales, int64_t rows, float* acc) {
  for (int64_t i = 0; i < 2 * rows; i++) {
    const float* scale = reinterpret_cast<const float*>(scales) + i % 2 * kHalf;
    v512::store(acc + i * kHalf, v512::mul(v512::load(acc + i * kHalf), v512::load(scale)));
  }
}

template <class W>
constexpr int kTile = Prepared<W>::kPlanes == 2 ? 4 : 6;  // rows; their sums stay in registers

// acc[R][32] += group g.
template <class W, int R>
ES_NOINLINE void add_group(const uint8_t* w, int64_t chunks, const Prepared<W>& x, int64_t row, int64_t g, float* acc) {
  constexpr int kPlanes = Prepared<W>::kPlanes;
  v512::Words sum[R][kPlanes][2] = {};
  const uint8_t* values[R];
  ES_UNROLL for (int r = 0; r < R; r++) {
    values[r] = x.values(row + r, g);
    sum[r][kPlanes - 1][0] = sum[r][kPlanes - 1][1] = v512::broadcast_word(x.correction(row + r, g));
  }
  const auto step = [&](int r, int64_t k, v512::Words w0, v512::Words w1) ES_INLINE_LAMBDA {
    ES_UNROLL for (int plane = 0; plane < kPlanes; plane++) {
      int32_t four;
      std::memcpy(&four, values[r] + k + W::kChunk * plane, 4);
      const v512::Words xi = v512::broadcast_word(four);
      sum[r][plane][0] = v512::dot_bytes(sum[r][plane][0], w0, xi);
      sum[r][plane][1] = v512::dot_bytes(sum[r][plane][1], w1, xi);
    }
  };
  for (int64_t c = 0; c < chunks; c++, w += W::kChunkBytes)
    for (int line = 0; line < W::kHalfChunkBytes / 64; line++) {
      const v512::Words w0 = v512::load_words(w + 64 * line);
      const v512::Words w1 = v512::load_words(w + W::kHalfChunkBytes + 64 * line);
      const int64_t k = kPlanes * W::kChunk * c + 4 * line;
      ES_UNROLL for (int r = 0; r < R; r++) {
        if constexpr (W::kBits == 4) {
          step(r, k, v512::low_nibbles(w0), v512::low_nibbles(w1));
          step(r, k + W::kChunk / 2, v512::high_nibbles(w0), v512::high_nibbles(w1));
        } else {
          step(r, k, w0, w1);
        }
      }
    }
  ES_UNROLL for (int h = 0; h < 2; h++) {
    const HalfScales<W> scales(w + 2 * kHalf * h);
    ES_UNROLL for (int r = 0; r < R; r++) {
      v512::Words whole = sum[r][0][h];
      if constexpr (kPlanes == 2) whole = join_planes(whole, sum[r][1][h]);
      scales.add(whole, x, row + r, g, acc + r * kPanel + h * kHalf);
    }
  }
}

// acc[rows][32] = x * panel, for rows from `row` on.
template <class W>
ES_NOINLINE void integer_panel(const uint8_t* panel, int64_t k, const Prepared<W>& x, int64_t row, int64_t rows,
                               float* acc) {
  std::fill(acc, acc + rows * kPanel, 0.0f);
  const uint8_t* group = panel;
  for (int64_t g = 0; g < W::groups(k); g++) {
    const int64_t chunks = W::chunks(k, g), bytes = chunks * W::kChunkBytes + W::kScaleBytes;
    for (int64_t i = 0; i < bytes; i += 64) _mm_prefetch(reinterpret_cast<const char*>(group + 4096 + i), _MM_HINT_T0);
    for_row_tiles<kTile<W>>(
        rows, [&](auto tile, int64_t r) { add_group<W, tile>(group, chunks, x, row + r, g, acc + r * kPanel); });
    group += bytes;
  }
  if constexpr (W::kPerChannel) scale_channels(group, rows, acc);
}

}  // namespace es::avx512
