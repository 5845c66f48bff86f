// Two-byte floats, one at a time. bfloat16 rounds to nearest, ties to even; NaN stays NaN.
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

inline float bf16_to_float(uint16_t x) { return bits_float(uint32_t{x} << 16); }
inline uint16_t float_to_bf16(float x) {
  const uint32_t bits = float_bits(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float fp16_to_float(uint16_t x) { return _cvtsh_ss(x); }
inline uint16_t float_to_fp16(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }

}  // namespace es
