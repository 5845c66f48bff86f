// FP8 panels, the same on every instruction set but for the sums of a run of K (Sums): acc = fma(sums,
// weight scale, acc) for group after group, or sums of all of K times the scale of the channel; times the row's scale
// at last.
#pragma once
#include "cpu/simd.h"
#include "linear/cpu/float_rows.h"

namespace es {

// f(row, vector of outputs, its first output) for a panel's outputs of `rows` rows, in place.
template <class F>
ES_INLINE void for_sums(float* acc, int64_t rows, F&& f) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < kPanel; i += VF::kLanes) {
      float* at = acc + r * kPanel + i;
      f(r, VF::load(at), i).store(at);
    }
}

// acc[rows][32] = x * panel, for rows from `row` on. Sums::add(panel, first, count, x, row, rows, sums) makes
// sums[rows][32] of `count` k from `first` on, weights being 2^-8 of what they are.
template <class Sums, class W>
ES_NOINLINE void fp8_panel(const uint8_t* panel, int64_t k, const Prepared<W>& x, int64_t row, int64_t rows,
                           float* acc) {
  const float* scales = reinterpret_cast<const float*>(panel + W::value_bytes(k));
  if constexpr (W::kPerChannel) {
    Sums::add(panel, 0, k, x, row, rows, acc);
    for_sums(acc, rows, [&](int64_t, VF sum, int64_t i) { return sum * VF::load(scales + i); });
  } else {
    std::fill(acc, acc + rows * kPanel, 0.0f);
    alignas(64) float sums[kRowBlock * kPanel];
    for (int64_t g = 0; g < W::groups(k); g++, scales += kPanel) {
      const int64_t first = g * W::kGroup;
      Sums::add(panel, first, std::min<int64_t>(W::kGroup, k - first), x, row, rows, sums);
      for_sums(acc, rows, [&](int64_t r, VF sum, int64_t i) {
        return fma(VF::load(sums + r * kPanel + i), VF::load(scales + i), sum);
      });
    }
  }
  if constexpr (Prepared<W>::kRounded)
    for_sums(acc, rows, [&](int64_t r, VF sum, int64_t) { return sum * VF::broadcast(x.scale(row + r)); });
}

}  // namespace es
