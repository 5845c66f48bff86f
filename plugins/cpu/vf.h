// VF: a register of float32 lanes, sixteen with AVX-512 and eight with AVX2 + FMA, under one set of names.
//
//   VF::kLanes, zero(), broadcast(x), load(p), load(p, n), store(p), store(p, n): with n, only the first n lanes
//   (0 <= n <= kLanes) are touched in memory, and a load's others are zero; load_bf16, store_bf16 (round to nearest,
//   ties to even), load_fp16 likewise; load_int8, load_fp8, store_int8, store_fp8 likewise, of bytes: stores round to
//   nearest, ties to even, and saturate; FP8 is E4M3, and load_fp8 gives 2^-8 of what the bytes stand for;
//   + - * /, fma(a, b, c) = a * b + c, fnma(a, b, c) = c - a * b, sqrt, round (ties to even), abs, copysign;
//   min, max: of a NaN and a number they give the second argument;
//   less, equal, is_nan give masks: select(mask, yes, no), bits(mask) with lane 0 as bit 0;
//   exp2_whole(n) = 2^n for whole n in [-126, 127]; split_exponent(x, &mantissa) for normal x > 0, with
//   x = mantissa * 2^result and mantissa in [sqrt(1/2), sqrt(2));
//   first_lane, reduce_add, reduce_max.
#pragma once
#include "cpu/half.h"

#if defined(ES_EMULATE_AVX512)
#include "cpu/vf16_emulated.h"
#elif defined(__AVX512F__)
#include "cpu/vf16.h"
#else
#include "cpu/vf8.h"
#endif

namespace es {

#if defined(ES_EMULATE_AVX512) || defined(__AVX512F__)
using VF = VF16;
using VMask = Mask16;
#else
using VF = VF8;
using VMask = Mask8;
#endif

// The first n lanes; quicker than load(p, n) and store(p, n) where those are mostly all of them.
inline VF load_lanes(const float* p, int n) { return n == VF::kLanes ? VF::load(p) : VF::load(p, n); }
inline void store_lanes(VF x, float* p, int n) { n == VF::kLanes ? x.store(p) : x.store(p, n); }

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
