// int8 and int4 panels on AVX2. Dot products of a group are exact; then acc = fma(float(sum), xscale * wscale, acc),
// groups ascending, the same for every number of rows.
#pragma once
#include <immintrin.h>

#include "linear/cpu/prepare.h"
#include "linear/cpu/weights.h"

namespace es::avx2 {

ES_INLINE __m256i load256(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
ES_INLINE __m256i broadcast4(const uint8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, 4);
  return _mm256_set1_epi32(four);
}

// int4: nibbles are unsigned, two products of 15 * 127 are added in 16 bits. Sums start at the correction for the shift
// by 8, so that 64 k end within 64 / 2 * 8 * 127 = 32512; wrapping on the way does no harm.
template <int R, int H>
struct NibbleSums {
  __m256i sum[R][2 * H];

  ES_INLINE void begin(const int32_t* const* correction, int64_t at) {
    for (int r = 0; r < R; r++)
      for (int v = 0; v < 2 * H; v++) sum[r][v] = _mm256_set1_epi32(correction[r][at]);
  }
  // 32 k of packed nibbles.
  ES_INLINE void add_packed(const uint8_t* w, const uint8_t* const* x, int64_t at) {
    const __m256i mask = _mm256_set1_epi8(15);
#pragma GCC unroll 4
    for (int line = 0; line < 4; line++) {
      __m256i low[2 * H], high[2 * H];
      for (int v = 0; v < 2 * H; v++) {
        const __m256i both = load256(w + v / 2 * 256 + line * 64 + v % 2 * 32);
        low[v] = _mm256_and_si256(both, mask);
        high[v] = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
      }
      for (int r = 0; r < R; r++) {
        const __m256i x0 = broadcast4(x[r] + at + 4 * line), x1 = broadcast4(x[r] + at + 16 + 4 * line);
        for (int v = 0; v < 2 * H; v++) {
          sum[r][v] = _mm256_add_epi16(sum[r][v], _mm256_maddubs_epi16(low[v], x0));
          sum[r][v] = _mm256_add_epi16(sum[r][v], _mm256_maddubs_epi16(high[v], x1));
        }
      }
    }
  }
  // 32 k of one half, unpacked to bytes.
  ES_INLINE void add_bytes(const uint8_t* w, const uint8_t* const* x, int64_t at) {
    static_assert(H == 1);
#pragma GCC unroll 8
    for (int line = 0; line < 8; line++) {
      const __m256i w0 = load256(w + line * 64), w1 = load256(w + line * 64 + 32);
      for (int r = 0; r < R; r++) {
        const __m256i xi = broadcast4(x[r] + at + 4 * line);
        sum[r][0] = _mm256_add_epi16(sum[r][0], _mm256_maddubs_epi16(w0, xi));
        sum[r][1] = _mm256_add_epi16(sum[r][1], _mm256_maddubs_epi16(w1, xi));
      }
    }
  }
};

// int8: widened to 16 bits, two products added in 32 bits.
template <int R, int H>
ES_INLINE void add_widened(__m256i (&sum)[R][2 * H], const uint8_t* w, const uint8_t* const* x, int64_t at) {
#pragma GCC unroll 4
  for (int pair = 0; pair < 16; pair++) {
    __m256i weight[2 * H];
    for (int v = 0; v < 2 * H; v++)
      weight[v] = _mm256_cvtepi8_epi16(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(w + v / 2 * 512 + pair * 32 + v % 2 * 16)));
    for (int r = 0; r < R; r++) {
      const __m256i xi = broadcast4(x[r] + 2 * at + 4 * pair);
      for (int v = 0; v < 2 * H; v++) sum[r][v] = _mm256_add_epi32(sum[r][v], _mm256_madd_epi16(weight[v], xi));
    }
  }
}
template <int R>
ES_INLINE void add_words(__m256i (&sum)[R][2], const uint8_t* w, const uint8_t* const* x, int64_t at) {
#pragma GCC unroll 4
  for (int pair = 0; pair < 16; pair++) {
    const __m256i w0 = load256(w + pair * 64), w1 = load256(w + pair * 64 + 32);
    for (int r = 0; r < R; r++) {
      const __m256i xi = broadcast4(x[r] + 2 * at + 4 * pair);
      sum[r][0] = _mm256_add_epi32(sum[r][0], _mm256_madd_epi16(w0, xi));
      sum[r][1] = _mm256_add_epi32(sum[r][1], _mm256_madd_epi16(w1, xi));
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
        _mm256_store_si256(reinterpret_cast<__m256i*>(out + i), _mm256_and_si256(both, mask));
        _mm256_store_si256(reinterpret_cast<__m256i*>(out + 256 + i),
                           _mm256_and_si256(_mm256_srli_epi16(both, 4), mask));
      }
      out += 512;
    } else {
      for (int i = 0; i < 512; i += 16)
        _mm256_store_si256(reinterpret_cast<__m256i*>(out + 2 * i),
                           _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w + i))));
      out += 1024;
    }
  }
}

// Exact sums of R rows over group g, of H halves; w is packed, or one half unpacked.
template <class W, int R, int H, bool Packed>
ES_INLINE void group_sums(const uint8_t* w, const Prepared<W>& x, int64_t row, int64_t g, int64_t chunks,
                          __m256i (&total)[R][2 * H]) {
  const uint8_t* values[R];
  for (int r = 0; r < R; r++) values[r] = x.values(row + r);
  const int64_t at = g * W::kPadded;
  for (int r = 0; r < R; r++)
    for (int v = 0; v < 2 * H; v++) total[r][v] = _mm256_setzero_si256();
  if constexpr (W::kBits == 8) {
    for (int64_t c = 0; c < chunks; c++) {
      if constexpr (Packed)
        add_widened<R, H>(total, w + c * W::kChunkBytes, values, at + 32 * c);
      else
        add_words<R>(total, w + c * 1024, values, at + 32 * c);
    }
  } else {
    const int32_t* corrections[R];
    for (int r = 0; r < R; r++) corrections[r] = x.corrections(row + r);
    const __m256i ones = _mm256_set1_epi16(1);
    NibbleSums<R, H> nibbles;
    for (int64_t c = 0; c < chunks; c += 2) {
      nibbles.begin(corrections, g * Prepared<W>::kCorrections + c / 2);
      for (int64_t i = c; i < std::min(c + 2, chunks); i++) {
        if constexpr (Packed)
          nibbles.add_packed(w + i * W::kChunkBytes, values, at + 32 * i);
        else
          nibbles.add_bytes(w + i * 512, values, at + 32 * i);
      }
      for (int r = 0; r < R; r++)
        for (int v = 0; v < 2 * H; v++)
          total[r][v] = _mm256_add_epi32(total[r][v], _mm256_madd_epi16(nibbles.sum[r][v], ones));
    }
  }
}

// acc[R][..] += sums, scaled; `scales` are this group's fp16 scales of the first of H halves.
template <class W, int R, int H>
ES_INLINE void add_scaled(const __m256i (&sum)[R][2 * H], const uint8_t* scales, const Prepared<W>& x, int64_t row,
                          int64_t g, float* acc) {
  for (int v = 0; v < 2 * H; v++) {
    __m256 weight_scale = _mm256_setzero_ps();
    if constexpr (!W::kPerChannel)
      weight_scale = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales + 16 * v)));
    for (int r = 0; r < R; r++) {
      __m256 scale = _mm256_set1_ps(x.scales(row + r)[g]);
      if constexpr (!W::kPerChannel) scale = _mm256_mul_ps(scale, weight_scale);
      float* to = acc + r * kPanel + 8 * v;
      _mm256_storeu_ps(to, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r][v]), scale, _mm256_loadu_ps(to)));
    }
  }
}

// acc[rows][32] = x * panel, for rows from `row` on.
template <class W>
void integer_panel(const uint8_t* panel, int64_t k, const Prepared<W>& x, int64_t row, int64_t rows, float* acc) {
  std::fill(acc, acc + rows * kPanel, 0.0f);
  alignas(64) uint8_t buffer[kUnpackedBytes<W>];
  const uint8_t* group = panel;
  for (int64_t g = 0; g < W::groups(k); g++) {
    const int64_t chunks = W::chunks(k, g);
    const uint8_t* scales = group + chunks * W::kChunkBytes;
    if (rows == 1) {
      for (int64_t i = 0; i < chunks * W::kChunkBytes; i += 64)
        _mm_prefetch(reinterpret_cast<const char*>(group + 4096 + i), _MM_HINT_T0);
      __m256i sum[1][4];
      group_sums<W, 1, 2, true>(group, x, row, g, chunks, sum);
      add_scaled<W, 1, 2>(sum, scales, x, row, g, acc);
    } else {
      for (int h = 0; h < 2; h++) {
        const uint8_t* half_scales = scales + 2 * kHalf * h;
        if (rows <= 4) {
          for_row_tiles<4>(rows, [&](auto tile, int64_t r) {
            __m256i sum[tile][2];
            group_sums<W, tile, 1, true>(group + h * W::kHalfChunkBytes, x, row + r, g, chunks, sum);
            add_scaled<W, tile, 1>(sum, half_scales, x, row + r, g, acc + r * kPanel + h * kHalf);
          });
        } else {
          unpack_half<W>(group, h, chunks, buffer);
          for_row_tiles<6>(rows, [&](auto tile, int64_t r) {
            __m256i sum[tile][2];
            group_sums<W, tile, 1, false>(buffer, x, row + r, g, chunks, sum);
            add_scaled<W, tile, 1>(sum, half_scales, x, row + r, g, acc + r * kPanel + h * kHalf);
          });
        }
      }
    }
    group = scales + W::kScaleBytes;
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
