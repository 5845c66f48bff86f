// int8 and int4 panels on AVX2. Dot products of a group are exact; then acc = fma(float(sum), xscale * wscale, acc),
// groups ascending, the same for every number of rows. With zero points, fma(zero, -sum of x, sum) replaces the sum.
#pragma once
#include <immintrin.h>

#include "linear/cpu/prepare.h"
#include "linear/cpu/weights.h"

namespace es::avx2 {

// Up to so many rows it is quicker to unpack weights in registers, tile after tile of rows, than once in memory.
template <class W>
constexpr int64_t kInlineRows = W::kBits == 4 ? 4 : 12;
template <class W>
constexpr int kInlineTile = W::kBits == 4 ? 4 : 6;

// Asks for what is read 4 KB later; few rows ask line by line as they read, many (of int8 three
// or more) for a group at once.
ES_INLINE void prefetch(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p + 4096), _MM_HINT_T0); }
ES_INLINE __m256i load256(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
ES_INLINE void store256(uint8_t* p, __m256i x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
ES_INLINE __m256i widen128(const uint8_t* p) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
ES_INLINE __m256 load_fp16(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
ES_INLINE __m256i broadcast4(const uint8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, 4);
  return _mm256_set1_epi32(four);
}

// Sums of R rows and V vectors of 8 outputs, in registers. The empty asm makes the compiler
// add at once; left alone, GCC reassociates integer sums, holds back all products and runs out of registers.
template <int R, int V>
struct Sums {
  __m256i at[R][V];

  ES_INLINE void add16(int r, int v, __m256i x) {
    at[r][v] = _mm256_add_epi16(at[r][v], x);
    asm("" : "+x"(at[r][v]));
  }
  ES_INLINE void add32(int r, int v, __m256i x) {
    at[r][v] = _mm256_add_epi32(at[r][v], x);
    asm("" : "+x"(at[r][v]));
  }
};

// int4, 32 k: nibbles are unsigned, so two products are at most 2 * 15 * 127, added in 16 bits. `x` is [R] rows.
template <int R, int V>
ES_INLINE void add_nibbles(Sums<R, V>& sums, const uint8_t* w, const uint8_t* const (&x)[R], int64_t at) {
  const __m256i mask = _mm256_set1_epi8(15);
  ES_UNROLL for (int line = 0; line < 4; line++) {
    __m256i low[V], high[V];
    ES_UNROLL for (int v = 0; v < V / 2; v++) prefetch(w + (V / 2 * line + v) * 64);
    ES_UNROLL for (int v = 0; v < V; v++) {
      const __m256i both = load256(w + v / 2 * 256 + line * 64 + v % 2 * 32);
      low[v] = _mm256_and_si256(both, mask);
      high[v] = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
    }
    ES_UNROLL for (int r = 0; r < R; r++) {
      const __m256i x0 = broadcast4(x[r] + at + 4 * line), x1 = broadcast4(x[r] + at + 16 + 4 * line);
      ES_UNROLL for (int v = 0; v < V; v++) {
        sums.add16(r, v, _mm256_maddubs_epi16(low[v], x0));
        sums.add16(r, v, _mm256_maddubs_epi16(high[v], x1));
      }
    }
  }
}
// The same for `lines` times 4 k of one half that was unpacked to bytes.
template <int R>
ES_INLINE void add_bytes(Sums<R, 2>& sums, const uint8_t* w, const uint8_t* const (&x)[R], int64_t at, int64_t lines) {
#pragma GCC unroll 4
  for (int64_t line = 0; line < lines; line++) {
    const __m256i w0 = load256(w + line * 64), w1 = load256(w + line * 64 + 32);
    ES_UNROLL for (int r = 0; r < R; r++) {
      const __m256i xi = broadcast4(x[r] + at + 4 * line);
      sums.add16(r, 0, _mm256_maddubs_epi16(w0, xi));
      sums.add16(r, 1, _mm256_maddubs_epi16(w1, xi));
    }
  }
}

// int8, 32 k: widened to 16 bits, two products added in 32 bits.
template <int R, int V>
ES_INLINE void add_widened(Sums<R, V>& sums, const uint8_t* w, const uint8_t* const (&x)[R], int64_t at) {
#pragma GCC unroll 4
  for (int pair = 0; pair < 16; pair++) {
    __m256i weight[V];
    if (V == 4 || pair % 2 == 0) prefetch(w + 16 * V * pair);
    ES_UNROLL for (int v = 0; v < V; v++) weight[v] = widen128(w + v / 2 * 512 + pair * 32 + v % 2 * 16);
    ES_UNROLL for (int r = 0; r < R; r++) {
      const __m256i xi = broadcast4(x[r] + 2 * at + 4 * pair);
      ES_UNROLL for (int v = 0; v < V; v++) sums.add32(r, v, _mm256_madd_epi16(weight[v], xi));
    }
  }
}
// The same for one half that was unpacked to 16-bit words.
template <int R>
ES_INLINE void add_words(Sums<R, 2>& sums, const uint8_t* w, const uint8_t* const (&x)[R], int64_t at) {
#pragma GCC unroll 4
  for (int pair = 0; pair < 16; pair++) {
    const __m256i w0 = load256(w + pair * 64), w1 = load256(w + pair * 64 + 32);
    ES_UNROLL for (int r = 0; r < R; r++) {
      const __m256i xi = broadcast4(x[r] + 2 * at + 4 * pair);
      sums.add32(r, 0, _mm256_madd_epi16(w0, xi));
      sums.add32(r, 1, _mm256_madd_epi16(w1, xi));
    }
  }
}

template <class W>
constexpr int64_t kUnpackedBytes = W::kPadded * kHalf * (W::kBits == 4 ? 1 : 2);  // a group of one half

// One half of a group's chunks to bytes (int4) or 16-bit words (int8).
template <class W>
ES_INLINE void unpack_half(const uint8_t* group, int half, int64_t chunks, uint8_t* out) {
  const __m256i mask = _mm256_set1_epi8(15);
  for (int64_t c = 0; c < chunks; c++) {
    const uint8_t* w = group + c * W::kChunkBytes + half * W::kHalfChunkBytes;
    if constexpr (W::kBits == 4) {
      for (int i = 0; i < 256; i += 32) {
        const __m256i both = load256(w + i);
        store256(out + i, _mm256_and_si256(both, mask));
        store256(out + 256 + i, _mm256_and_si256(_mm256_srli_epi16(both, 4), mask));
      }
      out += 512;
    } else {
      for (int i = 0; i < 512; i += 16) store256(out + 2 * i, widen128(w + i));
      out += 1024;
    }
  }
}

// acc[R][..] += the exact sums of group g, scaled. `w` is packed and holds V vectors, or is one half unpacked.
// `Chunks` are the group's, 0 where only `chunks` knows; `scales` begin at that of the first output. Not inlined:
// within a larger function GCC spills what the loops need.
template <class W, int R, int V, bool Packed, int64_t Chunks>
ES_NOINLINE void add_group(const uint8_t* w, const uint8_t* scales, const Prepared<W>& x, int64_t row, int64_t g,
                           int64_t some_chunks, float* acc) {
  const int64_t chunks = Chunks ? Chunks : some_chunks;
  const uint8_t* values[R];
  ES_UNROLL for (int r = 0; r < R; r++) values[r] = x.values(row + r);
  const int64_t at = g * W::kPadded;
  Sums<R, V> total{};
  if constexpr (W::kBits == 8) {
    for (int64_t c = 0; c < chunks; c++) {
      if constexpr (Packed)
        add_widened<R, V>(total, w + c * W::kChunkBytes, values, at + 32 * c);
      else
        add_words<R>(total, w + c * 1024, values, at + 32 * c);
    }
  } else {
    // 16-bit sums begin at the correction for the shift by 8, so that 64 k end within 64 / 2 * 8 * 127 = 32512;
    // wrapping on the way does no harm.
    const __m256i ones = _mm256_set1_epi16(1);
    for (int64_t c = 0; c < chunks; c += 2) {
      Sums<R, V> block;
      ES_UNROLL for (int r = 0; r < R; r++) {
        const __m256i begin = _mm256_set1_epi32(x.correction(row + r, g, c / 2));
        ES_UNROLL for (int v = 0; v < V; v++) block.at[r][v] = begin;
      }
      const int64_t count = std::min<int64_t>(2, chunks - c);
      if constexpr (Packed) {
        for (int64_t i = c; i < c + count; i++) add_nibbles<R, V>(block, w + i * W::kChunkBytes, values, at + 32 * i);
      } else {
        add_bytes<R>(block, w + c * 512, values, at + 32 * c, 8 * count);
      }
      ES_UNROLL for (int r = 0; r < R; r++) ES_UNROLL for (int v = 0; v < V; v++) total.at[r][v] =
          _mm256_add_epi32(total.at[r][v], _mm256_madd_epi16(block.at[r][v], ones));
    }
  }
  ES_UNROLL for (int v = 0; v < V; v++) {
    __m256 weight_scale = _mm256_setzero_ps(), zero = weight_scale;
    if constexpr (!W::kPerChannel) weight_scale = load_fp16(scales + 16 * v);
    if constexpr (W::kZeros) zero = load_fp16(scales + 2 * kPanel + 16 * v);
    ES_UNROLL for (int r = 0; r < R; r++) {
      __m256 scale = _mm256_set1_ps(x.scale(row + r, g));
      if constexpr (!W::kPerChannel) scale = _mm256_mul_ps(scale, weight_scale);
      __m256 sum = _mm256_cvtepi32_ps(total.at[r][v]);
      if constexpr (W::kZeros) sum = _mm256_fmadd_ps(zero, _mm256_set1_ps(x.minus_sum(row + r, g)), sum);
      float* to = acc + r * kPanel + 8 * v;
      _mm256_storeu_ps(to, _mm256_fmadd_ps(sum, scale, _mm256_loadu_ps(to)));
    }
  }
}

// Rows of one group. Few rows read packed weights; more share weights unpacked once.
template <class W, int64_t Chunks>
ES_INLINE void group_rows(const uint8_t* group, const Prepared<W>& x, int64_t row, int64_t rows, int64_t g,
                          int64_t chunks, float* acc, uint8_t* buffer) {
  const uint8_t* scales = group + chunks * W::kChunkBytes;
  if (rows == 1) return add_group<W, 1, 4, true, Chunks>(group, scales, x, row, g, chunks, acc);
  if constexpr (W::kBits == 8)
    if (rows == 2) return add_group<W, 2, 4, true, Chunks>(group, scales, x, row, g, chunks, acc);
  for (int h = 0; h < 2; h++) {
    const uint8_t* half = group + h * W::kHalfChunkBytes;
    const uint8_t* half_scales = scales + 2 * kHalf * h;
    float* half_acc = acc + kHalf * h;
    if (rows <= kInlineRows<W>) {
      for_row_tiles<kInlineTile<W>>(rows, [&](auto tile, int64_t r) {
        add_group<W, tile, 2, true, Chunks>(half, half_scales, x, row + r, g, chunks, half_acc + r * kPanel);
      });
    } else {
      unpack_half<W>(group, h, chunks, buffer);
      for_row_tiles<6>(rows, [&](auto tile, int64_t r) {
        add_group<W, tile, 2, false, Chunks>(buffer, half_scales, x, row + r, g, chunks, half_acc + r * kPanel);
      });
    }
  }
}

// acc[rows][32] = x * panel, for rows from `row` on.
template <class W>
ES_NOINLINE void integer_panel(const uint8_t* panel, int64_t k, const Prepared<W>& x, int64_t row, int64_t rows,
                               float* acc) {
  std::fill(acc, acc + rows * kPanel, 0.0f);
  alignas(64) uint8_t buffer[kUnpackedBytes<W>];
  constexpr int64_t kFull = W::kPadded / W::kChunk;
  const uint8_t* group = panel;
  for (int64_t g = 0; g < W::groups(k); g++) {
    const int64_t chunks = W::chunks(k, g);
    const int64_t bytes = chunks * W::kChunkBytes + W::kScaleBytes;
    if (rows > (W::kBits == 4 ? kInlineRows<W> : 2))
      for (int64_t i = 0; i < bytes; i += 64) prefetch(group + i);
    if (chunks == kFull)
      group_rows<W, kFull>(group, x, row, rows, g, kFull, acc, buffer);
    else
      group_rows<W, 0>(group, x, row, rows, g, chunks, acc, buffer);
    group += bytes;
  }
  if constexpr (W::kPerChannel)
    for (int64_t r = 0; r < rows; r++)
      for (int v = 0; v < 4; v++) {
        float* to = acc + r * kPanel + 8 * v;
        const __m256 scale = _mm256_loadu_ps(reinterpret_cast<const float*>(group) + 8 * v);
        _mm256_storeu_ps(to, _mm256_mul_ps(_mm256_loadu_ps(to), scale));
      }
}

}  // namespace es::avx2
