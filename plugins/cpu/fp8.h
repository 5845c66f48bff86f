// FP8 E4M3 (Micikevicius et al., 2022): 1-4-3, exponents biased by 7, no infinities, to 448.
#pragma once
#include "cpu/simd.h"
#include "cpu/tiles.h"

namespace es {

constexpr float kFp8Largest = 448;

// The E4M3 number nearest to x, ties to even; what is larger than 448 becomes 448.
ES_INLINE VF round_fp8(VF x) {
  const VF size = min(abs(x), VF::broadcast(kFp8Largest));
  const VF exponent = max(power_below(size), VF::broadcast(0x1p-6f));
  const VF whole = exponent * VF::broadcast(0x1p20f);  // a step of floats this large is a step of E4M3 at x
  return copysign((size + whole) - whole, x);
}

}  // namespace es
