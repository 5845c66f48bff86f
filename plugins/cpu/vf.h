// VF: a register of float32 lanes. One set of names over AVX2 + FMA (8 lanes) and AVX-512 (16 lanes).
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace es {

inline uint32_t float_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}
inline float bits_float(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

// bfloat16 as its 16 bits; rounds to nearest, ties to even; NaN stays NaN.
inline float bf16_to_float(uint16_t x) { return bits_float(uint32_t{x} << 16); }
inline uint16_t float_to_bf16(float x) {
  const uint32_t bits = float_bits(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float fp16_to_float(uint16_t x) { return _cvtsh_ss(x); }
inline uint16_t float_to_fp16(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }

#ifdef __AVX512F__

struct VMask {
  __mmask16 m;
};

struct VF {
  static constexpr int kLanes = 16;
  __m512 v;

  static VF zero() { return {_mm512_setzero_ps()}; }
  static VF broadcast(float x) { return {_mm512_set1_ps(x)}; }
  static VF load(const float* p) { return {_mm512_loadu_ps(p)}; }
  // The first n lanes (0 <= n <= kLanes); the rest are zero and their memory is not touched.
  static VF load(const float* p, int n) { return {_mm512_maskz_loadu_ps(first(n), p)}; }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  void store(float* p, int n) const { _mm512_mask_storeu_ps(p, first(n), v); }

  static VF load_bf16(const uint16_t* p) { return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  static VF load_bf16(const uint16_t* p, int n) { return widen(_mm256_maskz_loadu_epi16(first(n), p)); }
  void store_bf16(uint16_t* p) const { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow()); }
  void store_bf16(uint16_t* p, int n) const { _mm256_mask_storeu_epi16(p, first(n), narrow()); }
  static VF load_fp16(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }

  static __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1); }

 private:
  static VF widen(__m256i x) { return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16))}; }
  __m256i narrow() const {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_blend_epi32(nan, rounded, quiet), 16));
  }
};

inline VF operator+(VF a, VF b) { return {_mm512_add_ps(a.v, b.v)}; }
inline VF operator-(VF a, VF b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline VF operator*(VF a, VF b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline VF operator/(VF a, VF b) { return {_mm512_div_ps(a.v, b.v)}; }
inline VF fma(VF a, VF b, VF c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }    // a * b + c
inline VF fnma(VF a, VF b, VF c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }  // c - a * b
// Of a NaN and a number, min and max give the second argument, as the instructions do.
inline VF min(VF a, VF b) { return {_mm512_min_ps(a.v, b.v)}; }
inline VF max(VF a, VF b) { return {_mm512_max_ps(a.v, b.v)}; }
inline VF sqrt(VF a) { return {_mm512_sqrt_ps(a.v)}; }
inline VF round(VF a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline VF abs(VF a) { return {_mm512_abs_ps(a.v)}; }
inline VF copysign(VF a, VF sign) {
  const __m512i top = _mm512_set1_epi32(INT32_MIN);
  return {_mm512_castsi512_ps(_mm512_or_si512(_mm512_andnot_si512(top, _mm512_castps_si512(a.v)),
                                              _mm512_and_si512(top, _mm512_castps_si512(sign.v))))};
}
inline VMask less(VF a, VF b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
inline VMask equal(VF a, VF b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
inline VMask is_nan(VF a) { return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)}; }
inline VF select(VMask m, VF yes, VF no) { return {_mm512_mask_blend_ps(m.m, no.v, yes.v)}; }
inline uint32_t bits(VMask m) { return m.m; }
// 2^n for whole n in [-126, 127].
inline VF exp2_whole(VF n) {
  const __m512i e = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(e, 23))};
}
// For finite positive normal x: x = mantissa * 2^exponent, mantissa in [sqrt(1/2), sqrt(2)).
inline VF split_exponent(VF x, VF* mantissa) {
  const __m512i shifted = _mm512_sub_epi32(_mm512_castps_si512(x.v), _mm512_set1_epi32(0x3f3504f3));
  const __m512i e = _mm512_srai_epi32(shifted, 23);
  *mantissa = {_mm512_castsi512_ps(_mm512_sub_epi32(_mm512_castps_si512(x.v), _mm512_slli_epi32(e, 23)))};
  return {_mm512_cvtepi32_ps(e)};
}

#else

struct VMask {
  __m256 m;
};

struct VF {
  static constexpr int kLanes = 8;
  __m256 v;

  static VF zero() { return {_mm256_setzero_ps()}; }
  static VF broadcast(float x) { return {_mm256_set1_ps(x)}; }
  static VF load(const float* p) { return {_mm256_loadu_ps(p)}; }
  // The first n lanes (0 <= n <= kLanes); the rest are zero and their memory is not touched.
  static VF load(const float* p, int n) { return {_mm256_maskload_ps(p, first(n))}; }
  void store(float* p) const { _mm256_storeu_ps(p, v); }
  void store(float* p, int n) const { _mm256_maskstore_ps(p, first(n), v); }

  static VF load_bf16(const uint16_t* p) { return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static VF load_bf16(const uint16_t* p, int n) {
    uint16_t buffer[kLanes] = {};
    std::memcpy(buffer, p, sizeof(uint16_t) * n);
    return load_bf16(buffer);
  }
  void store_bf16(uint16_t* p) const { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow()); }
  void store_bf16(uint16_t* p, int n) const {
    uint16_t buffer[kLanes];
    store_bf16(buffer);
    std::memcpy(p, buffer, sizeof(uint16_t) * n);
  }
  static VF load_fp16(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }

  static __m256i first(int n) {
    alignas(32) static constexpr int32_t kWindow[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kWindow + 8 - n));
  }

 private:
  static VF widen(__m128i x) { return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16))}; }
  __m128i narrow() const {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
  }
};

inline VF operator+(VF a, VF b) { return {_mm256_add_ps(a.v, b.v)}; }
inline VF operator-(VF a, VF b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline VF operator*(VF a, VF b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline VF operator/(VF a, VF b) { return {_mm256_div_ps(a.v, b.v)}; }
inline VF fma(VF a, VF b, VF c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }    // a * b + c
inline VF fnma(VF a, VF b, VF c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }  // c - a * b
// Of a NaN and a number, min and max give the second argument, as the instructions do.
inline VF min(VF a, VF b) { return {_mm256_min_ps(a.v, b.v)}; }
inline VF max(VF a, VF b) { return {_mm256_max_ps(a.v, b.v)}; }
inline VF sqrt(VF a) { return {_mm256_sqrt_ps(a.v)}; }
inline VF round(VF a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline VF abs(VF a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
inline VF copysign(VF a, VF sign) {
  const __m256 top = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(_mm256_andnot_ps(top, a.v), _mm256_and_ps(top, sign.v))};
}
inline VMask less(VF a, VF b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
inline VMask equal(VF a, VF b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)}; }
inline VMask is_nan(VF a) { return {_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q)}; }
inline VF select(VMask m, VF yes, VF no) { return {_mm256_blendv_ps(no.v, yes.v, m.m)}; }
inline uint32_t bits(VMask m) { return static_cast<uint32_t>(_mm256_movemask_ps(m.m)); }
// 2^n for whole n in [-126, 127].
inline VF exp2_whole(VF n) {
  const __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(e, 23))};
}
// For finite positive normal x: x = mantissa * 2^exponent, mantissa in [sqrt(1/2), sqrt(2)).
inline VF split_exponent(VF x, VF* mantissa) {
  const __m256i shifted = _mm256_sub_epi32(_mm256_castps_si256(x.v), _mm256_set1_epi32(0x3f3504f3));
  const __m256i e = _mm256_srai_epi32(shifted, 23);
  *mantissa = {_mm256_castsi256_ps(_mm256_sub_epi32(_mm256_castps_si256(x.v), _mm256_slli_epi32(e, 23)))};
  return {_mm256_cvtepi32_ps(e)};
}

#endif

// Lanes are combined pairwise by halves: a fixed order.
inline float reduce_add(VF a) {
  float lanes[VF::kLanes];
  a.store(lanes);
  for (int half = VF::kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}
inline float reduce_max(VF a) {
  float lanes[VF::kLanes];
  a.store(lanes);
  for (int half = VF::kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] = lanes[i] < lanes[i + half] ? lanes[i + half] : lanes[i];
  return lanes[0];
}

}  // namespace es
