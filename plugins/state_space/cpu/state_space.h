// The scan of Mamba-2 (Dao and Gu, "Transformers are SSMs", 2024), token after token.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "cpu/sequence_state.h"
#include "cpu/simd.h"
#include "cpu/tensor.h"
#include "cpu/unroll.h"

namespace es {

// x, y [T, H, P], b, c [T, G, N], dt [T, H]; a, d, dt_bias [H], the last two or none.
struct StateSpaceInputs {
  Heads x, b, c;
  MutHeads y;
  Rows dt;
  const float *a, *d, *dt_bias;
  bool softplus;
  float dt_min, dt_max;
};

// Of each head, with dt = clamp(softplus(dt + dt_bias), dt_min, dt_max) and a state h [P, N]:
//
//   h <- exp(dt a) h + (dt x) b^T,   y = h c + d x
//
// Rows of h are independent of each other: a part of the work is some rows of a head. Within a row, N is reduced over
// the lanes of one vector, and those by halves.
template <int H, int P, int G, int N>
struct StateSpace {
  static_assert(H % G == 0, "the groups divide the heads");
  static constexpr int kLanes = VF::kLanes, kRows = 4;     // rows whose sums are in flight together
  static constexpr int kRowsAPart = P % 32 == 0 ? 32 : P;  // 16 KB of state where N is 128
  static constexpr int kBlocks = P / kRowsAPart, kWhole = N - N % kLanes;

  static void run(ThreadPool& pool, const StateSpaceInputs& in, StateLayer states, const StateStep& step) {
    each_sequence(pool, step, states, H * kBlocks, [&](float* state, int part, int start, int count) {
      const int head = part / kBlocks, first = part % kBlocks * kRowsAPart;
      scan(in, state + (int64_t{head} * P + first) * N, head, first, start, count);
    });
  }

 private:
  static void scan(const StateSpaceInputs& in, float* h, int head, int first, int start, int count) {
    const float skip = in.d ? in.d[head] : 0;
    for (int t = start; t < start + count; ++t) {
      const float dt = time_step(in, t, head);
      const VF decay = exp(VF::broadcast(dt * in.a[head]));
      const float *const b = in.b.at(t, head / (H / G)), *const c = in.c.at(t, head / (H / G));
      const float* const x = in.x.at(t, head) + first;
      float* const y = in.y.at(t, head) + first;
      constexpr int kRest = kRowsAPart % kRows, kEnd = kRowsAPart - kRest;
      for (int row = 0; row < kEnd; row += kRows) advance<kRows>(h + row * N, x + row, y + row, b, c, decay, dt, skip);
      if constexpr (kRest > 0) advance<kRest>(h + kEnd * N, x + kEnd, y + kEnd, b, c, decay, dt, skip);
    }
  }

  static float time_step(const StateSpaceInputs& in, int t, int head) {
    float dt = in.dt.row(t)[head] + (in.dt_bias ? in.dt_bias[head] : 0);
    if (in.softplus && dt <= 20.0f) dt = std::log1p(std::exp(dt));
    return std::min(std::max(dt, in.dt_min), in.dt_max);
  }

  // R rows of the state through one token.
  template <int R>
  static void advance(float* h, const float* x, float* y, const float* b, const float* c, VF decay, float dt,
                      float skip) {
    VF added[R], sum[R];
    unroll<R>([&](auto r) {
      added[r] = VF::broadcast(x[r] * dt);
      sum[r] = VF::zero();
    });
    for (int n = 0; n < kWhole; n += kLanes) {
      const VF bn = VF::load(b + n), cn = VF::load(c + n);
      unroll<R>([&](auto r) {
        const VF next = fma(added[r], bn, VF::load(h + r * N + n) * decay);
        next.store(h + r * N + n);
        sum[r] = fma(next, cn, sum[r]);
      });
    }
    if constexpr (kWhole < N) {
      constexpr int kTail = N - kWhole;
      const VF bn = VF::load(b + kWhole, kTail), cn = VF::load(c + kWhole, kTail);
      unroll<R>([&](auto r) {
        const VF next = fma(added[r], bn, VF::load(h + r * N + kWhole, kTail) * decay);
        next.store(h + r * N + kWhole, kTail);
        sum[r] = fma(next, cn, sum[r]);
      });
    }
    unroll<R>([&](auto r) { y[r] = std::fma(skip, x[r], reduce_add(sum[r])); });
  }
};

}  // namespace es
