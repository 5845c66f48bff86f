// A dimension cut into blocks whose width the compiler knows: all of `Block` elements but the last, which may be
// smaller.
#pragma once
#include <algorithm>
#include <type_traits>

#include "cpu/unroll.h"
#include "cpu/vf.h"

namespace es {

template <int Size, int Block>
struct Blocks {
  static constexpr int kCount = (Size + Block - 1) / Block, kTail = Size % Block;

  // f(the block's width), a constant expression.
  template <class F>
  ES_ALWAYS_INLINE static void at(int block, F&& f) {
    if constexpr (kTail > 0)
      if (block == kCount - 1) return f(std::integral_constant<int, kTail>{});
    if constexpr (Size >= Block) f(std::integral_constant<int, Block>{});
  }
};

// `Width` elements in vectors, of which the last may have fewer lanes.
template <int Width>
struct Vectors {
  static constexpr int kCount = (Width + VF::kLanes - 1) / VF::kLanes;
  VF at[kCount];

  static constexpr int lanes(int vector) { return std::min(VF::kLanes, Width - vector * VF::kLanes); }
  static Vectors zero() {
    Vectors all;
    unroll<kCount>([&](auto i) { all.at[i] = VF::zero(); });
    return all;
  }
  static VF load_one(const float* p, int vector) { return load_lanes(p + vector * VF::kLanes, lanes(vector)); }
  static void store_one(VF x, float* p, int vector) { store_lanes(x, p + vector * VF::kLanes, lanes(vector)); }
  static Vectors load(const float* p) {
    Vectors all;
    unroll<kCount>([&](auto i) { all.at[i] = load_one(p, i); });
    return all;
  }
  void store(float* p) const {
    unroll<kCount>([&](auto i) { store_one(at[i], p, i); });
  }
};

}  // namespace es
