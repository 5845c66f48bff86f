// The 512-bit operations that matrix kernels use, or their meaning in plain C++ where a test emulates them.
#pragma once
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "cpu/tiles.h"

namespace es::v512 {

#if defined(ES_EMULATE_AVX512) || defined(ES_EMULATE_AMX)

struct alignas(64) Floats {
  float lane[16];
};
struct alignas(64) Words {
  int32_t lane[16];
};

template <class F>
ES_INLINE Floats each_float(F&& f) {
  Floats y;
  for (int i = 0; i < 16; i++) y.lane[i] = f(i);
  return y;
}
template <class F>
ES_INLINE Words each_word(F&& f) {
  Words y;
  for (int i = 0; i < 16; i++) y.lane[i] = f(i);
  return y;
}
inline float high_half(uint32_t bits) {
  bits &= 0xffff0000u;
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

inline Floats zero() { return {}; }
inline Floats broadcast(float x) {
  return each_float([&](int) { return x; });
}
inline Floats load(const float* p) {
  return each_float([&](int i) { return p[i]; });
}
inline void store(float* p, Floats x) { std::memcpy(p, &x, 64); }
inline Floats fma(Floats a, Floats b, Floats c) {
  return each_float([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
}
inline Floats mul(Floats a, Floats b) {
  return each_float([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Floats to_floats(Words x) {
  return each_float([&](int i) { return static_cast<float>(x.lane[i]); });
}
inline Floats load_fp16(const uint8_t* p) {
  return each_float([&](int i) {
    uint16_t half;
    std::memcpy(&half, p + 2 * i, 2);
    return _cvtsh_ss(half);
  });
}

inline Words load_words(const void* p) {
  Words x;
  std::memcpy(&x, p, 64);
  return x;
}
inline void store_words(void* p, Words x) { std::memcpy(p, &x, 64); }
inline Words broadcast_word(int32_t x) {
  return each_word([&](int) { return x; });
}
// 64 E4M3 bytes [4][2][4][2] of (output / 4, k / 2, output % 4, k % 2) to bfloat16 of 2^-8 of their values: pairs of
// the first two k, and of the others.
inline void load_fp8(const uint8_t* p, Words& first, Words& second) {
  for (int i = 0; i < 16; i++)
    for (int pair = 0; pair < 2; pair++) {
      uint32_t bits[2];
      for (int j = 0; j < 2; j++) {
        const uint32_t byte = p[16 * (i / 4) + 8 * pair + 2 * (i % 4) + j];
        const float value = _cvtsh_ss(static_cast<uint16_t>((byte & 0x80) << 8 | (byte & 0x7f) << 7));
        std::memcpy(&bits[j], &value, 4);
      }
      (pair ? second : first).lane[i] = static_cast<int32_t>(bits[1] | bits[0] >> 16);
    }
}
inline Words add(Words a, Words b) {
  return each_word([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.lane[i]) + b.lane[i]); });
}
inline Words times_128(Words x) {
  return each_word([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(x.lane[i]) << 7); });
}
inline Words low_nibbles(Words x) {
  return each_word([&](int i) { return x.lane[i] & 0x0f0f0f0f; });
}
inline Words high_nibbles(Words x) {
  return each_word([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(x.lane[i]) >> 4 & 0x0f0f0f0f); });
}
// sum += four products of unsigned bytes and signed bytes in each lane.
inline Words dot_bytes(Words sum, Words unsigned_bytes, Words signed_bytes) {
  return each_word([&](int i) {
    uint32_t s = sum.lane[i];
    for (int j = 0; j < 32; j += 8)
      s += static_cast<uint8_t>(unsigned_bytes.lane[i] >> j) * static_cast<int8_t>(signed_bytes.lane[i] >> j);
    return static_cast<int32_t>(s);
  });
}
// sum += two products of bfloat16 in each lane.
inline Floats dot_bf16(Floats sum, Words a, Words b) {
  return each_float([&](int i) {
    const uint32_t x = a.lane[i], y = b.lane[i];
    return std::fma(high_half(x), high_half(y), std::fma(high_half(x << 16), high_half(y << 16), sum.lane[i]));
  });
}

#else

using Floats = __m512;
using Words = __m512i;

ES_INLINE Floats zero() { return _mm512_setzero_ps(); }
ES_INLINE Floats broadcast(float x) { return _mm512_set1_ps(x); }
ES_INLINE Floats load(const float* p) { return _mm512_loadu_ps(p); }
ES_INLINE void store(float* p, Floats x) { _mm512_storeu_ps(p, x); }
ES_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
ES_INLINE Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
ES_INLINE Floats to_floats(Words x) { return _mm512_cvtepi32_ps(x); }
ES_INLINE Floats load_fp16(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

ES_INLINE Words load_words(const void* p) { return _mm512_loadu_si512(p); }
ES_INLINE void store_words(void* p, Words x) { _mm512_storeu_si512(p, x); }
ES_INLINE Words broadcast_word(int32_t x) { return _mm512_set1_epi32(x); }
// 64 E4M3 bytes [4][2][4][2] of (output / 4, k / 2, output % 4, k % 2) to bfloat16 of 2^-8 of their values: pairs of
// the first two k, and of the others. A bfloat16's upper byte follows from the upper four bits and its lower one is the
// lower four, but for subnormals, which have tables.
ES_INLINE void load_fp8(const uint8_t* p, Words& first, Words& second) {
  const auto table = [](int64_t low, int64_t high)
                         ES_INLINE_LAMBDA { return _mm512_broadcast_i32x4(_mm_set_epi64x(high, low)); };
  const __m512i nibble = _mm512_set1_epi8(15), codes = _mm512_loadu_si512(p);
  const __m512i low = _mm512_and_si512(codes, nibble), high = _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble);
  const __mmask64 subnormal = _mm512_testn_epi8_mask(codes, _mm512_set1_epi8(0x78));
  const __m512i small = _mm512_ternarylogic_epi32(low, high, _mm512_set1_epi8(8), 0xf8);  // low | (high & 8)
  const __m512i lower = _mm512_mask_shuffle_epi8(_mm512_slli_epi16(low, 4), subnormal,
                                                 table(0x60402000c0800000, 0x60402000c0800000), small);
  const __m512i upper =
      _mm512_mask_shuffle_epi8(_mm512_shuffle_epi8(table(0x3f3e3d3c3b3a3938, 0xbfbebdbcbbbab9b8), high), subnormal,
                               table(0x3838383837373700, 0xb8b8b8b8b7b7b780), small);
  first = _mm512_unpacklo_epi8(lower, upper);
  second = _mm512_unpackhi_epi8(lower, upper);
}
ES_INLINE Words add(Words a, Words b) { return _mm512_add_epi32(a, b); }
ES_INLINE Words times_128(Words x) { return _mm512_slli_epi32(x, 7); }
ES_INLINE Words low_nibbles(Words x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
ES_INLINE Words high_nibbles(Words x) { return low_nibbles(_mm512_srli_epi16(x, 4)); }
// sum += four products of unsigned bytes and signed bytes in each lane.
ES_INLINE Words dot_bytes(Words sum, Words unsigned_bytes, Words signed_bytes) {
  return _mm512_dpbusd_epi32(sum, unsigned_bytes, signed_bytes);
}
// sum += two products of bfloat16 in each lane.
ES_INLINE Floats dot_bf16(Floats sum, Words a, Words b) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }

#endif

}  // namespace es::v512
