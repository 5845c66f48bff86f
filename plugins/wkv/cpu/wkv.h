// The WKV operator of RWKV-4 (Peng et al., 2023): an average of the values so far, weighted by exp(key) and decaying.
//
// Sums are kept relative to the largest exponent so far, so that no exponential overflows. Channels are independent
// and vectorised over: the work is shared out as (sequence, block of channels).
#pragma once
#include "cpu/blocks.h"
#include "cpu/sequence_state.h"
#include "cpu/simd.h"
#include "cpu/tensor.h"

namespace es {

// The step's keys, values and outputs [T, D]; w, what the exponents gain with every token, and u, what the exponent of
// a token's own key gains for its own output, [D].
struct WkvInputs {
  const float *w, *u;
  Rows k, v;
  MutRows y;
};

template <int D>
struct Wkv {
  using Channels = Blocks<D, VF::kLanes>;

  // A sequence's state is [3, D]: the weighted values, the weights, and the exponents that both are relative to.
  static void run(ThreadPool& pool, const WkvInputs& in, StateLayer states, const StateStep& step) {
    each_sequence(pool, step, states, Channels::kCount, [&](float* state, int part, int start, int count) {
      const int first = part * VF::kLanes;
      Channels::at(part, [&](auto width) { scan<width>(in, state + first, first, start, start + count); });
    });
  }

 private:
  static constexpr float kNone = -1e38f;  // below any exponent; where there is no weight yet, exponents say nothing

  // Tokens [start, end) of the step, of one sequence, through channels from `first` on.
  template <int Width>
  static void scan(const WkvInputs& in, float* state, int first, int start, int end) {
    const VF w = load_lanes(in.w + first, Width), u = load_lanes(in.u + first, Width);
    VF values = load_lanes(state, Width), weights = load_lanes(state + D, Width);
    VF top = select(equal(weights, VF::zero()), VF::broadcast(kNone), load_lanes(state + 2 * D, Width));
    for (int t = start; t < end; ++t) {
      const VF k = load_lanes(in.k.row(t) + first, Width), v = load_lanes(in.v.row(t) + first, Width);
      const VF bonus = k + u, seen = max(top, bonus);
      const VF past = exp_nonpositive(top - seen), own = exp_nonpositive(bonus - seen);
      store_lanes(fma(past, values, own * v) / fma(past, weights, own), in.y.row(t) + first, Width);
      const VF decayed = top + w, next = max(decayed, k);
      const VF keep = exp_nonpositive(decayed - next), add = exp_nonpositive(k - next);
      values = fma(keep, values, add * v);
      weights = fma(keep, weights, add);
      top = next;
    }
    store_lanes(values, state, Width), store_lanes(weights, state + D, Width), store_lanes(top, state + 2 * D, Width);
  }
};

}  // namespace es
