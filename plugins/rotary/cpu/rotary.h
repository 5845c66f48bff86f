// Rotary position embeddings (Su et al., RoFormer, 2021) of queries or keys.
#pragma once
#include "cpu/simd.h"
#include "cpu/tensor.h"
#include "cpu/thread_pool.h"

namespace es {

// Which elements of a head make pair i, out of R / 2.
enum class RotaryStyle {
  kNeox,        // i and i + R/2
  kGptj,        // 2i and 2i + 1
  kGptjToNeox,  // 2i and 2i + 1 on the way in, i and i + R/2 on the way out
};

namespace detail {

// The angles' cosines and sines of one token, one for each pair, padded to whole vectors.
template <int R, int CosStride>
struct Angles {
  static constexpr int kPairs = R / 2, kPadded = (kPairs + VF::kLanes - 1) / VF::kLanes * VF::kLanes;
  float cos[kPadded] = {}, sin[kPadded] = {};

  void load(const float* cos_row, const float* sin_row) {
    for (int i = 0; i < kPairs; ++i) cos[i] = cos_row[i * CosStride];
    for (int i = 0; i < kPairs; ++i) sin[i] = sin_row[i * CosStride];
  }
};

// (a, b) -> (a cos - b sin, b cos + a sin) for every pair; a and b are padded as the angles are.
template <int R, int CosStride>
inline void rotate(const Angles<R, CosStride>& angles, float* a, float* b) {
  for (int i = 0; i < Angles<R, CosStride>::kPadded; i += VF::kLanes) {
    const VF c = VF::load(angles.cos + i), s = VF::load(angles.sin + i);
    const VF x = VF::load(a + i), y = VF::load(b + i);
    fnma(y, s, x * c).store(a + i);
    fma(x, s, y * c).store(b + i);
  }
}

template <RotaryStyle S, int D, int R, int CosStride>
inline void rotate_head(const Angles<R, CosStride>& angles, const float* x, float* y) {
  constexpr int kPairs = R / 2;
  float a[Angles<R, CosStride>::kPadded] = {}, b[Angles<R, CosStride>::kPadded] = {};
  for (int i = 0; i < kPairs; ++i) {
    a[i] = x[S == RotaryStyle::kNeox ? i : 2 * i];
    b[i] = x[S == RotaryStyle::kNeox ? i + kPairs : 2 * i + 1];
  }
  rotate(angles, a, b);
  for (int i = R; i < D && x != y; ++i) y[i] = x[i];
  for (int i = 0; i < kPairs; ++i) {
    y[S == RotaryStyle::kGptj ? 2 * i : i] = a[i];
    y[S == RotaryStyle::kGptj ? 2 * i + 1 : i + kPairs] = b[i];
  }
}

}  // namespace detail

// Rotates the first R of each head's D elements by the token's angles and copies the rest. The angle of pair i is
// cos.row(t)[i * CosStride]. y may be x itself.
template <RotaryStyle S, int H, int D, int R, int CosStride>
void rotary(ThreadPool& pool, Heads x, Rows cos, Rows sin, MutHeads y, int64_t T) {
  static_assert(R % 2 == 0 && R <= D, "pairs need an even rotary dimension within the head");
  constexpr int64_t kElementsATask = 16384;
  pool.run_ranges(T, 1 + kElementsATask / (H * D), [&](int64_t first, int64_t last, int) {
    detail::Angles<R, CosStride> angles;
    for (int64_t t = first; t < last; ++t) {
      angles.load(cos.row(t), sin.row(t));
      for (int h = 0; h < H; ++h) detail::rotate_head<S, D>(angles, x.at(t, h), y.at(t, h));
    }
  });
}

}  // namespace es
