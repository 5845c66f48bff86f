// Activations for weights that are not integers: float32 as they are, bf16 for the instructions that multiply bf16, and
// rounded to E4M3 where an FP8 layer asks for it.
#pragma once
#include <cstring>

#include "cpu/simd.h"
#include "cpu/tensor.h"
#include "linear/cpu/weights.h"

namespace es {

template <class W>
struct Prepared;

template <>
struct Prepared<Fp32Weight> : Rows {};

// bf16 rows for the instructions that multiply bf16: padded with zeros to kBf16Pad, an odd number of cache lines apart.
struct Bf16Rows {
  const uint8_t* data;
  int64_t stride;

  static constexpr int64_t row_bytes(int64_t k) { return (ceil_div(2 * k, 64) | 1) * 64; }
  const uint8_t* row(int64_t r) const { return data + r * stride; }
};
constexpr bool kBf16Products = kMatrixIsa != MatrixIsa::kAvx2;
template <>
struct Prepared<Bf16Weight> : std::conditional_t<kBf16Products, Bf16Rows, Rows> {};

inline void round_row(const float* x, int64_t k, uint8_t* to) {
  uint16_t* y = reinterpret_cast<uint16_t*>(to);
  std::memset(y + k, 0, Bf16Rows::row_bytes(k) - 2 * k);
  int64_t i = 0;
  for (; i + VF::kLanes <= k; i += VF::kLanes) VF::load(x + i).store_bf16(y + i);
  if (i < k) VF::load(x + i, static_cast<int>(k - i)).store_bf16(y + i, static_cast<int>(k - i));
}

// Rows of floats or bf16 for FP8 weights. Where the layer rounds its inputs they are E4M3 numbers, which both types
// hold, and a row ends with the scale that they were divided by.
template <int Group, Inputs In>
struct Prepared<Fp8Weight<Group, In>> {
  static constexpr bool kRounded = In != Inputs::kNone;
  static constexpr bool kCopied = kRounded || kBf16Products;  // otherwise the rows are those of the input
  static constexpr int64_t kElement = kBf16Products ? 2 : 4;

  const uint8_t* data;
  int64_t stride;

  static constexpr int64_t row_bytes(int64_t k) {
    return (ceil_div(round_up(kElement * k, 64) + (kRounded ? 4 : 0), 64) | 1) * 64;
  }
  const uint8_t* row(int64_t r, int64_t k = 0) const { return data + r * stride + kElement * k; }
  float scale(int64_t r) const {
    float scale = 1;
    if (kRounded) std::memcpy(&scale, row(r + 1) - 4, 4);
    return scale;
  }
};

constexpr float kFp8Largest = 448;

// The E4M3 numbers nearest to x.
ES_INLINE VF round_fp8(VF x) {
  uint8_t codes[VF::kLanes];
  x.store_fp8(codes);
  return VF::load_fp8(codes) * VF::broadcast(256);
}

// x / scale in E4M3, then what pads the row, then the scale.
template <class P>
void round_row_fp8(const float* x, int64_t k, float scale, uint8_t* to) {
  std::memset(to + P::kElement * k, 0, P::row_bytes(k) - P::kElement * k - 4);
  std::memcpy(to + P::row_bytes(k) - 4, &scale, 4);
  const VF divisor = VF::broadcast(scale > 0 ? scale : 1), keep = VF::broadcast(scale > 0 ? 1 : 0);
  for (int64_t i = 0; i < k; i += VF::kLanes) {
    const int lanes = static_cast<int>(std::min<int64_t>(VF::kLanes, k - i));
    const VF value = round_fp8(VF::load(x + i, lanes) / divisor) * keep;
    if constexpr (kBf16Products)
      value.store_bf16(reinterpret_cast<uint16_t*>(to) + i, lanes);
    else
      value.store(reinterpret_cast<float*>(to) + i, lanes);
  }
}

}  // namespace es
