// A depthwise causal convolution along sequences, as recurrent layers have it before their scan, and as a layer of its
// own (Gu and Dao, "Mamba", 2023; Liquid AI's LFM2).
#pragma once
#include <algorithm>
#include <cstdint>

#include "cpu/sequence_state.h"
#include "cpu/simd.h"
#include "cpu/tensor.h"
#include "cpu/unroll.h"

namespace es {

namespace detail {

// `n` channels (at most a vector's lanes) of `count` tokens of a sequence. `weight`, `past` and the rows begin at the
// first of them; `past` [K - 1, C] has the tokens before, oldest first, and afterwards the last ones.
template <int C, int K, bool Silu>
inline void convolve(Rows x, const float* weight, const float* bias, MutRows y, float* past, int start, int count,
                     int n) {
  VF w[K], seen[K];  // seen[k]: the token that weight k is for
  es::unroll<K>([&](auto k) { w[k] = load_lanes(weight + k * C, n); });
  es::unroll<K - 1>([&](auto k) { seen[k] = load_lanes(past + k * C, n); });
  const VF first = bias ? load_lanes(bias, n) : VF::zero();
  for (int t = start; t < start + count; ++t) {
    seen[K - 1] = load_lanes(x.row(t), n);
    VF sum = first;
    es::unroll<K>([&](auto k) { sum = fma(w[k], seen[k], sum); });
    store_lanes(Silu ? silu(sum) : sum, y.row(t), n);
    es::unroll<K - 1>([&](auto k) { seen[k] = seen[k + 1]; });
  }
  es::unroll<K - 1>([&](auto k) { store_lanes(seen[k], past + k * C, n); });
}

}  // namespace detail

// x, y [T, C], weight [K, C], bias [C] or none; state [K - 1, C].
template <int C, int K, bool Silu>
void causal_conv1d(ThreadPool& pool, Rows x, const float* weight, const float* bias, MutRows y, StateLayer states,
                   const StateStep& step) {
  constexpr int kChannelsATask = 256, kTasks = (C + kChannelsATask - 1) / kChannelsATask;
  each_sequence(pool, step, states, kTasks, [&](float* state, int part, int start, int count) {
    const int last = std::min(C, (part + 1) * kChannelsATask);
    for (int c = part * kChannelsATask; c < last; c += VF::kLanes) {
      detail::convolve<C, K, Silu>({x.data + c, x.stride}, weight + c, bias ? bias + c : nullptr,
                                   {y.data + c, y.stride}, state + c, start, count, std::min(VF::kLanes, last - c));
    }
  });
}

}  // namespace es
