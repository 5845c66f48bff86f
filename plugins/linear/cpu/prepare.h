// Activations as the kernels want them: float32 as they are, or quantized once per call.
//
// Integer weights: per row and group of K, q = round_to_even(x * (127 / absmax)), scale = absmax / 127. A group whose
// absmax is below 2^-100 becomes zeros. Static inputs: q = round_to_even(x / scale) within [-128, 127].
#pragma once
#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "linear/cpu/float_rows.h"

namespace es {

// Quantized rows: each is padded_k values (int8; int16 for int8 weights on AVX2), then a float scale a group, then the
// int32 corrections that take away what weights were shifted by to be unsigned, then, for weights with zero points, a
// float a group: minus the sum of its values, which a zero is multiplied by.
template <class W>
struct Prepared {
  static constexpr bool kWide = kMatrixIsa == MatrixIsa::kAvx2 && W::kBits == 8;
  static constexpr bool kCorrected = !kWide;
  // AVX2 sums 64 products of a nibble in 16 bits, in two lanes: one correction (two int16) for each such block.
  static constexpr bool kPaired = kMatrixIsa == MatrixIsa::kAvx2 && W::kBits == 4;
  static constexpr int64_t kCorrections = kPaired ? ceil_div(W::kPadded, 64) : 1;
  static constexpr int kShift = W::kBits == 4 ? 8 : 128;
  static constexpr int64_t kGroupBytes = 4 * (1 + kCorrections + W::kZeros);

  const uint8_t* data;
  int64_t stride, scale_offset, correction_offset, sum_offset;

  static constexpr int64_t value_bytes(int64_t k) { return W::padded_k(k) * (kWide ? 2 : 1); }
  // An odd number of cache lines, so that rows do not fall into the same sets.
  static constexpr int64_t row_bytes(int64_t k) {
    return (round_up(value_bytes(k) + W::groups(k) * kGroupBytes, 64) / 64 | 1) * 64;
  }
  static Prepared at(const uint8_t* data, int64_t k) {
    const int64_t scales = value_bytes(k), corrections = scales + 4 * W::groups(k);
    return {data, row_bytes(k), scales, corrections, corrections + 4 * kCorrections * W::groups(k)};
  }

  const uint8_t* values(int64_t row) const { return data + row * stride; }
  const float* scales(int64_t row) const { return reinterpret_cast<const float*>(values(row) + scale_offset); }
  const int32_t* corrections(int64_t row) const {
    return reinterpret_cast<const int32_t*>(values(row) + correction_offset);
  }
  const float* minus_sums(int64_t row) const { return reinterpret_cast<const float*>(values(row) + sum_offset); }
};

ES_INLINE float absmax(const float* x, int64_t n) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  __m256 m = _mm256_setzero_ps(), m1 = m;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    m = _mm256_max_ps(m, _mm256_andnot_ps(sign, _mm256_loadu_ps(x + i)));
    m1 = _mm256_max_ps(m1, _mm256_andnot_ps(sign, _mm256_loadu_ps(x + i + 8)));
  }
  m = _mm256_max_ps(m, m1);
  __m128 h = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
  h = _mm_max_ps(h, _mm_movehl_ps(h, h));
  h = _mm_max_ss(h, _mm_movehdup_ps(h));
  float best = _mm_cvtss_f32(h);
  for (; i < n; i++) best = std::max(best, std::fabs(x[i]));
  return best;
}

// 32 floats to 32 int8: times `factor`, or divided by it and clamped where it does not come from their own absmax.
template <Inputs In>
ES_INLINE __m256i quantize32(const float* x, __m256 factor) {
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
  const __m256i words = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  return _mm256_permutevar8x32_epi32(words, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Adds the 16-bit lanes of v of equal parity: two int16 in one int32.
ES_INLINE int32_t sum_paired(__m256i v) {
  __m128i h = _mm_add_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  h = _mm_add_epi16(h, _mm_unpackhi_epi64(h, h));
  h = _mm_add_epi16(h, _mm_shuffle_epi32(h, 1));
  return _mm_cvtsi128_si32(h);
}

template <class W>
void quantize_row(const float* x, int64_t k, float input_scale, uint8_t* record) {
  using P = Prepared<W>;
  float* scales = reinterpret_cast<float*>(record + P::value_bytes(k));
  int32_t* corrections = reinterpret_cast<int32_t*>(scales + W::groups(k));
  float* minus_sums = reinterpret_cast<float*>(corrections + P::kCorrections * W::groups(k));
  const __m256i ones = _mm256_set1_epi8(1);
  for (int64_t g = 0; g < W::groups(k); g++) {
    const int64_t n = std::min<int64_t>(W::kGroup, k - g * W::kGroup);
    const float* xg = x + g * W::kGroup;
    __m256 factor;
    if constexpr (W::kInputs == Inputs::kStatic) {
      scales[g] = input_scale;
      factor = _mm256_set1_ps(input_scale);
    } else {
      const float m = absmax(xg, n);
      const bool tiny = m < 0x1p-100f;
      scales[g] = tiny ? 0.0f : m / 127.0f;
      factor = _mm256_set1_ps(tiny ? 0.0f : 127.0f / m);
    }
    __m256i sum = _mm256_setzero_si256();
    int32_t total = 0;
    const int64_t padded = W::chunks(k, g) * kChunk;
    for (int64_t i = 0; i < padded; i += 32) {
      alignas(32) float tail[32] = {};
      const float* from = xg + i;
      if (i + 32 > n) {
        if (i < n) std::memcpy(tail, from, (n - i) * sizeof(float));
        from = tail;
      }
      const __m256i q = quantize32<W::kInputs>(from, factor);
      if constexpr (P::kWide) {
        __m256i* to = reinterpret_cast<__m256i*>(record) + (g * W::kPadded + i) / 16;
        _mm256_store_si256(to, _mm256_cvtepi8_epi16(_mm256_castsi256_si128(q)));
        _mm256_store_si256(to + 1, _mm256_cvtepi8_epi16(_mm256_extracti128_si256(q, 1)));
      } else {
        _mm256_store_si256(reinterpret_cast<__m256i*>(record + g * W::kPadded + i), q);
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(ones, q));
        const bool flush = i % 64 == 32 || i + 32 == padded;
        if (flush && P::kPaired) {
          const __m256i shifted = _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_slli_epi16(sum, 3));
          corrections[g * P::kCorrections + i / 64] = sum_paired(shifted);
        }
        if (flush && (W::kZeros || !P::kPaired)) {
          const int32_t two = sum_paired(sum);
          total += static_cast<int16_t>(two) + (two >> 16);
        }
        if (flush) sum = _mm256_setzero_si256();
      }
    }
    if (P::kCorrected && !P::kPaired) corrections[g] = -P::kShift * total;
    if (W::kZeros) minus_sums[g] = static_cast<float>(-total);
  }
}

// f(row) for all rows: on the calling thread where waking the others would take longer.
template <class F>
void for_each_row(ThreadPool& pool, int64_t rows, int64_t k, F&& f) {
  const int64_t each = std::max<int64_t>(1, 8192 / k);
  if (rows <= 2 * each) {
    for (int64_t r = 0; r < rows; r++) f(r);
  } else {
    pool.run(ceil_div(rows, each), [&](int64_t task, int) {
      for (int64_t r = task * each; r < std::min(rows, (task + 1) * each); r++) f(r);
    });
  }
}

// Scratch that prepare() needs for `rows` rows.
template <class W>
constexpr int64_t prepared_bytes(int64_t k, int64_t rows) {
  if constexpr (std::is_same_v<W, Fp32Weight>)
    return 0;
  else if constexpr (std::is_same_v<W, Bf16Weight>)
    return kBf16Products ? rows * Bf16Rows::row_bytes(k) : 0;
  else if constexpr (kIsFp8<W>)
    return Prepared<W>::kCopied ? rows * Prepared<W>::row_bytes(k) : 0;
  else
    return rows * Prepared<W>::row_bytes(k);
}

// FP8 weights' rows of x, rounded as their inputs are to be.
template <class W>
Prepared<W> prepare_fp8(ThreadPool& pool, Rows x, int64_t k, int64_t rows, uint8_t* scratch, float input_scale) {
  using P = Prepared<W>;
  if constexpr (!P::kCopied) return {reinterpret_cast<const uint8_t*>(x.data), 4 * x.stride};
  const P prepared{scratch, P::row_bytes(k)};
  for_each_row(pool, rows, k, [&](int64_t r) {
    uint8_t* to = scratch + r * prepared.stride;
    if constexpr (!P::kRounded) {
      round_row(x.row(r), k, to);
    } else {
      float scale = input_scale;
      if constexpr (W::kInputs == Inputs::kDynamic) {
        const float m = absmax(x.row(r), k);
        scale = m < 0x1p-100f ? 0.0f : m / kFp8Largest;
      }
      round_row_fp8<P>(x.row(r), k, scale, to);
    }
  });
  return prepared;
}

// Prepares rows of x; `scratch` is 64-byte aligned and holds prepared_bytes(k, rows). `input_scale` is of static
// inputs.
template <class W>
Prepared<W> prepare(ThreadPool& pool, Rows x, int64_t k, int64_t rows, uint8_t* scratch, float input_scale) {
  constexpr bool kIsBf16 = std::is_same_v<W, Bf16Weight>;
  if constexpr (std::is_same_v<W, Fp32Weight> || (kIsBf16 && !kBf16Products)) {
    return {x};
  } else if constexpr (kIsBf16) {
    const int64_t stride = Bf16Rows::row_bytes(k);
    for_each_row(pool, rows, k, [&](int64_t r) { round_row(x.row(r), k, scratch + r * stride); });
    return {{scratch, stride}};
  } else if constexpr (kIsFp8<W>) {
    return prepare_fp8<W>(pool, x, k, rows, scratch, input_scale);
  } else {
    const Prepared<W> prepared = Prepared<W>::at(scratch, k);
    for_each_row(pool, rows, k,
                 [&](int64_t r) { quantize_row<W>(x.row(r), k, input_scale, scratch + r * prepared.stride); });
    return prepared;
  }
}

}  // namespace es
