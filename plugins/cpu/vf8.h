// VF8: eight float32 lanes in an AVX2 register. vf.h says what the names mean.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace es {

struct Mask8 {
  __m256 m;
};

struct VF8 {
  static constexpr int kLanes = 8;
  __m256 v;

  static VF8 zero() { return {_mm256_setzero_ps()}; }
  static VF8 broadcast(float x) { return {_mm256_set1_ps(x)}; }
  static VF8 load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static VF8 load(const float* p, int n) { return {_mm256_maskload_ps(p, first(n))}; }
  void store(float* p) const { _mm256_storeu_ps(p, v); }
  void store(float* p, int n) const { _mm256_maskstore_ps(p, first(n), v); }

  static VF8 load_bf16(const uint16_t* p) { return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static VF8 load_bf16(const uint16_t* p, int n) {
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
  static VF8 load_fp16(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }

  static VF8 load_int8(const int8_t* p) { return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_bytes(p)))}; }
  static VF8 load_int8(const int8_t* p, int n) {
    int8_t buffer[kLanes] = {};
    std::memcpy(buffer, p, n);
    return load_int8(buffer);
  }
  void store_int8(int8_t* p) const { store_int8(p, kLanes); }
  void store_int8(int8_t* p, int n) const {
    const __m256 clamped = _mm256_min_ps(_mm256_max_ps(v, _mm256_set1_ps(-128.0f)), _mm256_set1_ps(127.0f));
    const __m256i whole = _mm256_cvtps_epi32(clamped);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    store_bytes(_mm_packs_epi16(words, words), p, n);
  }

  // An E4M3 byte moved up by 7 is the fp16 number with its sign, exponent and mantissa: the exponent's bias differs by
  // 8, for subnormal numbers too.
  static VF8 load_fp8(const uint8_t* p) {
    const __m128i wide = _mm_slli_epi16(_mm_cvtepi8_epi16(load_bytes(p)), 7);
    return {_mm256_cvtph_ps(_mm_and_si128(wide, _mm_set1_epi16(static_cast<int16_t>(0xbf80))))};
  }
  static VF8 load_fp8(const uint8_t* p, int n) {
    uint8_t buffer[kLanes] = {};
    std::memcpy(buffer, p, n);
    return load_fp8(buffer);
  }
  void store_fp8(uint8_t* p) const { store_fp8(p, kLanes); }
  void store_fp8(uint8_t* p, int n) const {
    const __m256i codes = fp8_codes();
    const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
    store_bytes(_mm_packus_epi16(words, words), p, n);
  }

  static __m256i first(int n) {
    alignas(32) static constexpr int32_t kWindow[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kWindow + 8 - n));
  }

 private:
  static VF8 widen(__m128i x) { return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16))}; }
  __m128i narrow() const {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
  }
  static __m128i load_bytes(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }
  static void store_bytes(__m128i bytes, void* p, int n) {
    uint8_t buffer[16];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(buffer), bytes);
    std::memcpy(p, buffer, n);
  }
  // E4M3 in the lowest byte of each lane. Normal numbers are rounded in their bits; for subnormal ones the addition of
  // 2^14, whose last place is the 2^-9 that they are multiples of, rounds.
  __m256i fp8_codes() const {
    const __m256i bits = _mm256_castps_si256(v), size = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(size, 20), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(size, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7ffff)));
    const __m256i rebiased = _mm256_sub_epi32(_mm256_srli_epi32(rounded, 20), _mm256_set1_epi32((127 - 7) << 3));
    const __m256i normal = _mm256_min_epi32(rebiased, _mm256_set1_epi32(0x7e));
    const __m256 shift = _mm256_set1_ps(16384.0f);
    const __m256i shifted = _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(size), shift));
    const __m256i subnormal = _mm256_sub_epi32(shifted, _mm256_castps_si256(shift));
    const __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32((127 - 6) << 23), size);
    const __m256i is_nan = _mm256_cmpgt_epi32(size, _mm256_set1_epi32(0x7f800000));
    const __m256i code = _mm256_blendv_epi8(normal, subnormal, is_small);
    const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
    return _mm256_or_si256(_mm256_blendv_epi8(code, _mm256_set1_epi32(0x7f), is_nan), sign);
  }
};

inline VF8 operator+(VF8 a, VF8 b) { return {_mm256_add_ps(a.v, b.v)}; }
inline VF8 operator-(VF8 a, VF8 b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline VF8 operator*(VF8 a, VF8 b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline VF8 operator/(VF8 a, VF8 b) { return {_mm256_div_ps(a.v, b.v)}; }
inline VF8 fma(VF8 a, VF8 b, VF8 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }    // a * b + c
inline VF8 fnma(VF8 a, VF8 b, VF8 c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }  // c - a * b
inline VF8 min(VF8 a, VF8 b) { return {_mm256_min_ps(a.v, b.v)}; }
inline VF8 max(VF8 a, VF8 b) { return {_mm256_max_ps(a.v, b.v)}; }
inline VF8 sqrt(VF8 a) { return {_mm256_sqrt_ps(a.v)}; }
inline VF8 round(VF8 a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline VF8 abs(VF8 a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
inline VF8 copysign(VF8 a, VF8 sign) {
  const __m256 top = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(_mm256_andnot_ps(top, a.v), _mm256_and_ps(top, sign.v))};
}
inline Mask8 less(VF8 a, VF8 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
inline Mask8 equal(VF8 a, VF8 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)}; }
inline Mask8 is_nan(VF8 a) { return {_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q)}; }
inline VF8 select(Mask8 m, VF8 yes, VF8 no) { return {_mm256_blendv_ps(no.v, yes.v, m.m)}; }
inline uint32_t bits(Mask8 m) { return static_cast<uint32_t>(_mm256_movemask_ps(m.m)); }
inline VF8 exp2_whole(VF8 n) {
  const __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(e, 23))};
}
inline VF8 split_exponent(VF8 x, VF8* mantissa) {
  const __m256i shifted = _mm256_sub_epi32(_mm256_castps_si256(x.v), _mm256_set1_epi32(0x3f3504f3));
  const __m256i e = _mm256_srai_epi32(shifted, 23);
  *mantissa = {_mm256_castsi256_ps(_mm256_sub_epi32(_mm256_castps_si256(x.v), _mm256_slli_epi32(e, 23)))};
  return {_mm256_cvtepi32_ps(e)};
}
inline float first_lane(VF8 a) { return _mm256_cvtss_f32(a.v); }

}  // namespace es
