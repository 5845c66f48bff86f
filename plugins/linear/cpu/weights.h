// Weight types and how their panels lie in memory; plugins/linear/cpu/packing.py writes the same bytes.
//
// A weight [N, K] is a row of panels of 32 outputs, each two halves of 16, zero where N ends within one.
//   fp32  [half][K][16]
//   bf16  AVX2: [half][K][16], 32-bit lane i holds outputs i (low) and 8 + i (high); else [half][K/2][16][2]
//   int8  a group after another, each [chunk][half] of: AVX2 [chunk / 2][16][2] bytes of (k / 2, output, k % 2); else
//         [chunk / 4][16][4] of (k / 4, output, k % 4), plus 128
//   int4  a group after another, each [chunk][half][chunk / 8][16][4]: the low nibble of (r, output, j) is
//         k = 4 r + j, the high one k = chunk / 2 + 4 r + j; plus 8
//   fp8   [K/4][half] of: AVX2 [4][16] bytes of (k % 4, output); else [4][2][4][2] of (output / 4, k / 2 % 2,
//         output % 4, k % 2), E4M3; then for each group (or once) 32 fp32 scales, times 2^8
// K is padded with zeros: every group of an integer type to whole chunks of kChunk, bf16 to kBf16Pad, fp8 to 32. An
// integer group is followed by its 32 fp16 scales and, of a weight with zero points, its 32 fp16 zeros; a weight with
// one scale per channel ends its panels with 32 fp32 scales instead. An element is scale * q, or scale * (q - zero),
// where `plus` is taken off q again.
#pragma once
#include <cstdint>

#include "cpu/tiles.h"

namespace es {

struct Fp32Weight {};
struct Bf16Weight {};

// What an FP8 or int8 layer's inputs are rounded to: kNone is as exact as the kernel can, kDynamic finds scales for
// each token, kStatic has one that is given.
enum class Inputs { kNone, kDynamic, kStatic };

template <int Group, Inputs In = Inputs::kNone>
struct Fp8Weight {
  static_assert(Group >= 0 && Group % 32 == 0);
  static constexpr bool kPerChannel = Group == 0;
  static constexpr int64_t kGroup = Group;
  static constexpr Inputs kInputs = In;

  static constexpr int64_t groups(int64_t k) { return kPerChannel ? 1 : ceil_div(k, Group); }
  static constexpr int64_t value_bytes(int64_t k) { return round_up(k, 32) * kPanel; }
};
template <class W>
constexpr bool kIsFp8 = false;
template <int Group, Inputs In>
constexpr bool kIsFp8<Fp8Weight<Group, In>> = true;

template <int Bits, int Group, bool Zeros = false, Inputs In = Inputs::kNone>
struct IntWeight {
  static_assert(Group >= 0 && (Bits == 4 || Bits == 8));
  static_assert(In == Inputs::kNone || Bits == 8, "inputs of int4 weights are rounded to int8 in one way");
  static_assert(!Zeros || Group > 0, "zero points belong to groups");
  static constexpr int kBits = Bits;
  static constexpr bool kZeros = Zeros;
  static constexpr Inputs kInputs = In;
  static constexpr bool kPerChannel = Group == 0;
  static constexpr int64_t kGroup = Group ? Group : 128;  // of the activations, too
  static constexpr int64_t kChunk = kMatrixIsa == MatrixIsa::kAvx2 || (kGroup - 1) % 64 < 32 ? 32 : 64;
  static constexpr int64_t kPadded = round_up(kGroup, kChunk);
  // What the largest input of a token and group becomes. Beyond int8 it is as much as 128 * high + low, low in [-64,
  // 63], splits into two bytes, and as the exact sum of a group leaves room for in 32 bits.
  static constexpr bool kFine = Bits == 8 && In == Inputs::kNone;
  static constexpr int64_t kLargest = kFine ? std::min<int64_t>(127 * 128 + 63, INT32_MAX / (128 * kGroup)) : 127;
  static constexpr int64_t kHalfChunkBytes = kChunk * kHalf * Bits / 8;
  static constexpr int64_t kChunkBytes = 2 * kHalfChunkBytes;
  static constexpr int64_t kScaleBytes = kPerChannel ? 0 : (kZeros ? 4 : 2) * kPanel;  // zeros included

  static constexpr int64_t groups(int64_t k) { return ceil_div(k, kGroup); }
  // Chunks in group g of a weight with K = k.
  static constexpr int64_t chunks(int64_t k, int64_t g) {
    return g + 1 < groups(k) ? kPadded / kChunk : ceil_div(k - g * kGroup, kChunk);
  }
  static constexpr int64_t padded_k(int64_t k) { return (groups(k) - 1) * kPadded + kChunk * chunks(k, groups(k) - 1); }
};
template <int Group, Inputs In = Inputs::kNone>
using Int8Weight = IntWeight<8, Group, false, In>;
template <int Group, bool Zeros = false>
using Int4Weight = IntWeight<4, Group, Zeros>;

template <class W>
constexpr int64_t panel_bytes(int64_t k) {
  if constexpr (std::is_same_v<W, Fp32Weight>) {
    return k * kPanel * 4;
  } else if constexpr (std::is_same_v<W, Bf16Weight>) {
    return round_up(k, kBf16Pad) * kPanel * 2;
  } else if constexpr (kIsFp8<W>) {
    return W::value_bytes(k) + W::groups(k) * kPanel * 4;
  } else {
    const int64_t scales = W::kPerChannel ? 4 * kPanel : W::groups(k) * W::kScaleBytes;
    return W::padded_k(k) * kPanel * W::kBits / 8 + scales;
  }
}

// Bytes of a packed weight [n, k].
template <class W>
constexpr int64_t weight_bytes(int64_t n, int64_t k) {
  return ceil_div(n, kPanel) * panel_bytes<W>(k);
}

}  // namespace es
