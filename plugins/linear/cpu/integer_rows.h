// Activations for integer weights: per row and group of K, q = round_to_even(x * (kLargest / absmax)), scale = absmax /
// kLargest. A group whose absmax is below 2^-100 becomes zeros. Static inputs: q = round_to_even(x / scale) within
// [-128, 127].
#pragma once
#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "linear/cpu/float_rows.h"

namespace es {

// Quantized rows, each of padded_k values; then [groups][rows] float scales, so that what a block of rows needs of a
// group lies together; then likewise the int32 corrections that take away what weights were shifted by to be unsigned,
// and, for weights with zero points, floats: minus the sum of a group's values, which a zero is multiplied by.
// A value is an int8, or for int8 weights on AVX2 an int16. Those beyond int8
// are 128 * high + low elsewhere: the high bytes of a chunk are followed by its low ones.
template <class W>
struct Prepared {
  static constexpr bool kWide = kMatrixIsa == MatrixIsa::kAvx2 && W::kBits == 8;
  static constexpr int kPlanes = W::kFine && !kWide ? 2 : 1;
  static constexpr int64_t kValueBytes = kWide ? 2 : kPlanes;
  static constexpr bool kCorrected = !kWide;
  // AVX2 sums 64 products of a nibble in 16 bits, in two lanes: one correction (two int16) for each such block.
  static constexpr bool kPaired = kMatrixIsa == MatrixIsa::kAvx2 && W::kBits == 4;
  static constexpr int64_t kCorrections = kPaired ? ceil_div(W::kPadded, 64) : 1;
  static constexpr int kShift = W::kBits == 4 ? 8 : 128;
  static constexpr int64_t kGroupBytes = 4 * (1 + kCorrections + W::kZeros);

  uint8_t* data;
  int64_t stride, rows;
  float* scales;
  int32_t* corrections;
  float* minus_sums;

  // An odd number of cache lines, so that rows do not fall into the same sets.
  static constexpr int64_t row_bytes(int64_t k) { return (ceil_div(W::padded_k(k) * kValueBytes, 64) | 1) * 64; }
  static constexpr int64_t bytes(int64_t k, int64_t rows) { return rows * (row_bytes(k) + W::groups(k) * kGroupBytes); }
  static Prepared at(uint8_t* data, int64_t k, int64_t rows) {
    const int64_t each = W::groups(k) * rows;
    float* scales = reinterpret_cast<float*>(data + rows * row_bytes(k));
    int32_t* corrections = reinterpret_cast<int32_t*>(scales + each);
    float* minus_sums = reinterpret_cast<float*>(corrections + kCorrections * each);
    return {data, row_bytes(k), rows, scales, corrections, minus_sums};
  }

  const uint8_t* values(int64_t row) const { return data + row * stride; }
  const uint8_t* values(int64_t row, int64_t g) const { return values(row) + g * W::kPadded * kValueBytes; }
  float& scale(int64_t row, int64_t g) const { return scales[g * rows + row]; }
  // `block` of those that a group has.
  int32_t& correction(int64_t row, int64_t g, int64_t block = 0) const {
    return corrections[(g * kCorrections + block) * rows + row];
  }
  float& minus_sum(int64_t row, int64_t g) const { return minus_sums[g * rows + row]; }
};

// NaN where there is one: magnitudes are compared as integers, of which a NaN's is the largest.
ES_INLINE float absmax(const float* x, int64_t n) {
  const __m256i size = _mm256_set1_epi32(0x7fffffff);
  const auto load = [&](int64_t i) ES_INLINE_LAMBDA {
    return _mm256_and_si256(size, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i)));
  };
  __m256i m = _mm256_setzero_si256(), m1 = m;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    m = _mm256_max_epi32(m, load(i));
    m1 = _mm256_max_epi32(m1, load(i + 8));
  }
  m = _mm256_max_epi32(m, m1);
  __m128i h = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  h = _mm_max_epi32(h, _mm_unpackhi_epi64(h, h));
  h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 1));
  int32_t best = _mm_cvtsi128_si32(h);
  for (; i < n; i++) {
    int32_t bits;
    std::memcpy(&bits, x + i, sizeof bits);
    best = std::max(best, bits & 0x7fffffff);
  }
  float result;
  std::memcpy(&result, &best, sizeof result);
  return result;
}

// 32 values as int16. Each half holds, as the instruction that narrows them leaves them, 0-3, 8-11, 4-7 and 12-15.
struct Values32 {
  __m256i half[2];

  // Times `factor`, or divided by it and clamped where it does not come from their own absmax.
  template <Inputs In>
  ES_INLINE static Values32 quantize(const float* x, __m256 factor) {
    __m256i q[4];
    for (int i = 0; i < 4; i++) {
      __m256 value = _mm256_loadu_ps(x + 8 * i);
      if constexpr (In == Inputs::kStatic) {
        value = _mm256_max_ps(_mm256_div_ps(value, factor), _mm256_set1_ps(-128));
        value = _mm256_min_ps(value, _mm256_set1_ps(127));
      } else {
        value = _mm256_mul_ps(value, factor);
      }
      q[i] = _mm256_cvtps_epi32(value);
    }
    return {{_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3])}};
  }
  ES_INLINE void store_words(uint8_t* to) const {
    for (int i = 0; i < 2; i++)
      _mm256_store_si256(reinterpret_cast<__m256i*>(to) + i, _mm256_permute4x64_epi64(half[i], 0xd8));
  }
  ES_INLINE __m256i bytes() const {
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(half[0], half[1]), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }
  ES_INLINE void store_bytes(uint8_t* to) const { _mm256_store_si256(reinterpret_cast<__m256i*>(to), bytes()); }
  // To 128 * high + low, low in [-64, 63].
  ES_INLINE void split(Values32& high, Values32& low) const {
    for (int i = 0; i < 2; i++) {
      high.half[i] = _mm256_srai_epi16(_mm256_add_epi16(half[i], _mm256_set1_epi16(64)), 7);
      low.half[i] = _mm256_sub_epi16(half[i], _mm256_slli_epi16(high.half[i], 7));
    }
  }
  // Added up to eight int32.
  ES_INLINE __m256i sums() const {
    const __m256i ones = _mm256_set1_epi16(1);
    return _mm256_add_epi32(_mm256_madd_epi16(half[0], ones), _mm256_madd_epi16(half[1], ones));
  }
};

ES_INLINE int32_t sum_words(__m256i v) {
  __m128i h = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  h = _mm_add_epi32(h, _mm_unpackhi_epi64(h, h));
  return _mm_cvtsi128_si32(_mm_add_epi32(h, _mm_shuffle_epi32(h, 1)));
}
// Adds the 16-bit lanes of v of equal parity: two int16 in one int32.
ES_INLINE int32_t sum_paired(__m256i v) {
  __m128i h = _mm_add_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  h = _mm_add_epi16(h, _mm_unpackhi_epi64(h, h));
  h = _mm_add_epi16(h, _mm_shuffle_epi32(h, 1));
  return _mm_cvtsi128_si32(h);
}

template <class W>
void quantize_row(const float* x, int64_t k, float input_scale, const Prepared<W>& prepared, int64_t row) {
  using P = Prepared<W>;
  constexpr float kLargest = W::kLargest;
  uint8_t* values = prepared.data + row * prepared.stride;
  for (int64_t g = 0; g < W::groups(k); g++) {
    const int64_t n = std::min<int64_t>(W::kGroup, k - g * W::kGroup);
    const float* xg = x + g * W::kGroup;
    __m256 factor;
    if constexpr (W::kInputs == Inputs::kStatic) {
      prepared.scale(row, g) = input_scale;
      factor = _mm256_set1_ps(input_scale);
    } else {
      const float m = absmax(xg, n);
      const bool tiny = m < 0x1p-100f;
      prepared.scale(row, g) = tiny ? 0.0f : m / kLargest;
      factor = _mm256_set1_ps(tiny ? 0.0f : kLargest / m);
    }
    __m256i total = _mm256_setzero_si256(), block = total;
    const int64_t padded = W::chunks(k, g) * W::kChunk;
    for (int64_t i = 0; i < padded; i += 32) {
      alignas(32) float tail[32] = {};
      const float* from = xg + i;
      if (i + 32 > n) {
        if (i < n) std::memcpy(tail, from, (n - i) * sizeof(float));
        from = tail;
      }
      const Values32 q = Values32::quantize<W::kInputs>(from, factor);
      uint8_t* to = values + (g * W::kPadded + i) * P::kValueBytes;
      if constexpr (P::kWide) {
        q.store_words(to);
      } else if constexpr (P::kPlanes == 2) {
        Values32 high, low;
        q.split(high, low);
        high.store_bytes(to - i % W::kChunk);
        low.store_bytes(to - i % W::kChunk + W::kChunk);
      } else {
        q.store_bytes(to);
      }
      if constexpr (P::kPaired) {
        block = _mm256_sub_epi16(block, _mm256_maddubs_epi16(_mm256_set1_epi8(P::kShift), q.bytes()));
        if (i % 64 == 32 || i + 32 == padded) {
          prepared.correction(row, g, i / 64) = sum_paired(block);
          block = _mm256_setzero_si256();
        }
      }
      if constexpr ((P::kCorrected && !P::kPaired) || W::kZeros) total = _mm256_add_epi32(total, q.sums());
    }
    if constexpr (P::kCorrected && !P::kPaired) prepared.correction(row, g) = -P::kShift * sum_words(total);
    if constexpr (W::kZeros) prepared.minus_sum(row, g) = static_cast<float>(-sum_words(total));
  }
}

}  // namespace es
