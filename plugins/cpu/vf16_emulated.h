// VF16 as two VF8, so that tests run the sixteen-lane kernels on machines without AVX-512.
#pragma once
#include <algorithm>
#include <cstdint>

#include "cpu/vf8.h"

namespace es {

struct Mask16 {
  Mask8 low, high;
};

struct VF16 {
  static constexpr int kLanes = 16;
  VF8 low, high;

  static VF16 zero() { return {VF8::zero(), VF8::zero()}; }
  static VF16 broadcast(float x) { return {VF8::broadcast(x), VF8::broadcast(x)}; }
  static VF16 load(const float* p) { return {VF8::load(p), VF8::load(p + 8)}; }
  static VF16 load(const float* p, int n) { return {VF8::load(p, in_low(n)), VF8::load(p + 8, n - in_low(n))}; }
  void store(float* p) const { low.store(p), high.store(p + 8); }
  void store(float* p, int n) const { low.store(p, in_low(n)), high.store(p + 8, n - in_low(n)); }

  static VF16 load_bf16(const uint16_t* p) { return {VF8::load_bf16(p), VF8::load_bf16(p + 8)}; }
  static VF16 load_bf16(const uint16_t* p, int n) {
    return {VF8::load_bf16(p, in_low(n)), VF8::load_bf16(p + 8, n - in_low(n))};
  }
  void store_bf16(uint16_t* p) const { low.store_bf16(p), high.store_bf16(p + 8); }
  void store_bf16(uint16_t* p, int n) const { low.store_bf16(p, in_low(n)), high.store_bf16(p + 8, n - in_low(n)); }
  static VF16 load_fp16(const uint16_t* p) { return {VF8::load_fp16(p), VF8::load_fp16(p + 8)}; }

  static VF16 load_int8(const int8_t* p) { return {VF8::load_int8(p), VF8::load_int8(p + 8)}; }
  static VF16 load_int8(const int8_t* p, int n) {
    return {VF8::load_int8(p, in_low(n)), VF8::load_int8(p + 8, n - in_low(n))};
  }
  void store_int8(int8_t* p) const { low.store_int8(p), high.store_int8(p + 8); }
  void store_int8(int8_t* p, int n) const { low.store_int8(p, in_low(n)), high.store_int8(p + 8, n - in_low(n)); }
  static VF16 load_fp8(const uint8_t* p) { return {VF8::load_fp8(p), VF8::load_fp8(p + 8)}; }
  static VF16 load_fp8(const uint8_t* p, int n) {
    return {VF8::load_fp8(p, in_low(n)), VF8::load_fp8(p + 8, n - in_low(n))};
  }
  void store_fp8(uint8_t* p) const { low.store_fp8(p), high.store_fp8(p + 8); }
  void store_fp8(uint8_t* p, int n) const { low.store_fp8(p, in_low(n)), high.store_fp8(p + 8, n - in_low(n)); }

 private:
  static int in_low(int n) { return std::min(n, 8); }
};

inline VF16 operator+(VF16 a, VF16 b) { return {a.low + b.low, a.high + b.high}; }
inline VF16 operator-(VF16 a, VF16 b) { return {a.low - b.low, a.high - b.high}; }
inline VF16 operator*(VF16 a, VF16 b) { return {a.low * b.low, a.high * b.high}; }
inline VF16 operator/(VF16 a, VF16 b) { return {a.low / b.low, a.high / b.high}; }
inline VF16 fma(VF16 a, VF16 b, VF16 c) { return {fma(a.low, b.low, c.low), fma(a.high, b.high, c.high)}; }
inline VF16 fnma(VF16 a, VF16 b, VF16 c) { return {fnma(a.low, b.low, c.low), fnma(a.high, b.high, c.high)}; }
inline VF16 min(VF16 a, VF16 b) { return {min(a.low, b.low), min(a.high, b.high)}; }
inline VF16 max(VF16 a, VF16 b) { return {max(a.low, b.low), max(a.high, b.high)}; }
inline VF16 sqrt(VF16 a) { return {sqrt(a.low), sqrt(a.high)}; }
inline VF16 round(VF16 a) { return {round(a.low), round(a.high)}; }
inline VF16 abs(VF16 a) { return {abs(a.low), abs(a.high)}; }
inline VF16 copysign(VF16 a, VF16 sign) { return {copysign(a.low, sign.low), copysign(a.high, sign.high)}; }
inline Mask16 less(VF16 a, VF16 b) { return {less(a.low, b.low), less(a.high, b.high)}; }
inline Mask16 equal(VF16 a, VF16 b) { return {equal(a.low, b.low), equal(a.high, b.high)}; }
inline Mask16 is_nan(VF16 a) { return {is_nan(a.low), is_nan(a.high)}; }
inline VF16 select(Mask16 m, VF16 yes, VF16 no) {
  return {select(m.low, yes.low, no.low), select(m.high, yes.high, no.high)};
}
inline uint32_t bits(Mask16 m) { return bits(m.low) | bits(m.high) << 8; }
inline VF16 exp2_whole(VF16 n) { return {exp2_whole(n.low), exp2_whole(n.high)}; }
inline VF16 split_exponent(VF16 x, VF16* mantissa) {
  const VF8 low = split_exponent(x.low, &mantissa->low), high = split_exponent(x.high, &mantissa->high);
  return {low, high};
}
inline float first_lane(VF16 a) { return first_lane(a.low); }

}  // namespace es
