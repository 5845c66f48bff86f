// VF16: sixteen float32 lanes in an AVX-512 register. vf.h says what the names mean.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace es {

struct Mask16 {
  __mmask16 m;
};

struct VF16 {
  static constexpr int kLanes = 16;
  __m512 v;

  static VF16 zero() { return {_mm512_setzero_ps()}; }
  static VF16 broadcast(float x) { return {_mm512_set1_ps(x)}; }
  static VF16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static VF16 load(const float* p, int n) { return {_mm512_maskz_loadu_ps(first(n), p)}; }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  void store(float* p, int n) const { _mm512_mask_storeu_ps(p, first(n), v); }

  static VF16 load_bf16(const uint16_t* p) { return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  static VF16 load_bf16(const uint16_t* p, int n) { return widen(_mm256_maskz_loadu_epi16(first(n), p)); }
  void store_bf16(uint16_t* p) const { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow()); }
  void store_bf16(uint16_t* p, int n) const { _mm256_mask_storeu_epi16(p, first(n), narrow()); }
  static VF16 load_fp16(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }

  static VF16 load_int8(const int8_t* p) { return widen_int8(load_bytes(p)); }
  static VF16 load_int8(const int8_t* p, int n) { return widen_int8(_mm_maskz_loadu_epi8(first(n), p)); }
  void store_int8(int8_t* p) const { store_int8(p, kLanes); }
  void store_int8(int8_t* p, int n) const {
    const __m512 clamped = _mm512_min_ps(_mm512_max_ps(v, _mm512_set1_ps(-128.0f)), _mm512_set1_ps(127.0f));
    _mm_mask_storeu_epi8(p, first(n), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(clamped)));
  }

  static VF16 load_fp8(const uint8_t* p) { return widen_fp8(load_bytes(p)); }
  static VF16 load_fp8(const uint8_t* p, int n) { return widen_fp8(_mm_maskz_loadu_epi8(first(n), p)); }
  void store_fp8(uint8_t* p) const { store_fp8(p, kLanes); }
  void store_fp8(uint8_t* p, int n) const { _mm_mask_storeu_epi8(p, first(n), _mm512_cvtepi32_epi8(fp8_codes())); }

  static __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1); }

 private:
  static VF16 widen(__m256i x) { return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16))}; }
  __m256i narrow() const {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_blend_epi32(nan, rounded, quiet), 16));
  }
  static __m128i load_bytes(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static VF16 widen_int8(__m128i x) { return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(x))}; }
  // As in VF8.
  static VF16 widen_fp8(__m128i x) {
    const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(x), 7);
    return {_mm512_cvtph_ps(_mm256_and_si256(wide, _mm256_set1_epi16(static_cast<int16_t>(0xbf80))))};
  }
  // As in VF8.
  __m512i fp8_codes() const {
    const __m512i bits = _mm512_castps_si512(v), size = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(size, 20), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(size, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7ffff)));
    const __m512i rebiased = _mm512_sub_epi32(_mm512_srli_epi32(rounded, 20), _mm512_set1_epi32((127 - 7) << 3));
    const __m512i normal = _mm512_min_epi32(rebiased, _mm512_set1_epi32(0x7e));
    const __m512 shift = _mm512_set1_ps(16384.0f);
    const __m512i shifted = _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(size), shift));
    const __m512i subnormal = _mm512_sub_epi32(shifted, _mm512_castps_si512(shift));
    const __mmask16 is_small = _mm512_cmplt_epi32_mask(size, _mm512_set1_epi32((127 - 6) << 23));
    const __m512i code = _mm512_mask_blend_epi32(is_small, normal, subnormal);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80));
    return _mm512_or_si512(_mm512_mask_blend_epi32(is_nan, code, _mm512_set1_epi32(0x7f)), sign);
  }
};

inline VF16 operator+(VF16 a, VF16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline VF16 operator-(VF16 a, VF16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline VF16 operator*(VF16 a, VF16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline VF16 operator/(VF16 a, VF16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline VF16 fma(VF16 a, VF16 b, VF16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }    // a * b + c
inline VF16 fnma(VF16 a, VF16 b, VF16 c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }  // c - a * b
inline VF16 min(VF16 a, VF16 b) { return {_mm512_min_ps(a.v, b.v)}; }
inline VF16 max(VF16 a, VF16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline VF16 sqrt(VF16 a) { return {_mm512_sqrt_ps(a.v)}; }
inline VF16 round(VF16 a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline VF16 abs(VF16 a) { return {_mm512_abs_ps(a.v)}; }
inline VF16 copysign(VF16 a, VF16 sign) {
  const __m512i top = _mm512_set1_epi32(INT32_MIN);
  return {_mm512_castsi512_ps(_mm512_or_si512(_mm512_andnot_si512(top, _mm512_castps_si512(a.v)),
                                              _mm512_and_si512(top, _mm512_castps_si512(sign.v))))};
}
inline Mask16 less(VF16 a, VF16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
inline Mask16 equal(VF16 a, VF16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
inline Mask16 is_nan(VF16 a) { return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)}; }
inline VF16 select(Mask16 m, VF16 yes, VF16 no) { return {_mm512_mask_blend_ps(m.m, no.v, yes.v)}; }
inline uint32_t bits(Mask16 m) { return m.m; }
inline VF16 exp2_whole(VF16 n) {
  const __m512i e = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(e, 23))};
}
inline VF16 split_exponent(VF16 x, VF16* mantissa) {
  const __m512i shifted = _mm512_sub_epi32(_mm512_castps_si512(x.v), _mm512_set1_epi32(0x3f3504f3));
  const __m512i e = _mm512_srai_epi32(shifted, 23);
  *mantissa = {_mm512_castsi512_ps(_mm512_sub_epi32(_mm512_castps_si512(x.v), _mm512_slli_epi32(e, 23)))};
  return {_mm512_cvtepi32_ps(e)};
}
inline float first_lane(VF16 a) { return _mm512_cvtss_f32(a.v); }

}  // namespace es
