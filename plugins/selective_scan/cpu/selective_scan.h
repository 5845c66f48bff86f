// The selective scan of Mamba (Gu and Dao, 2023): a channel's state is a vector, decayed and added to by every token.
//
// Channels are independent of each other and vectorised over: the work is shared out as (sequence, block of channels).
#pragma once
#include <cstdint>

#include "cpu/blocks.h"
#include "cpu/sequence_state.h"
#include "cpu/simd.h"
#include "cpu/tensor.h"

namespace es {

// The step's u and dt [T, D], B and C [T, N], y [T, D]; A [N, D].
struct SelectiveScanInputs {
  Rows u, dt;
  const float* A;
  Rows B, C;
  MutRows y;
};

// For each token and channel, with a state h of N: h <- exp(dt A) h + dt u B, y = C . h. No dt A may be positive.
template <int D, int N>
struct SelectiveScan {
  static constexpr int kChannels = 4 * VF::kLanes;
  using Channels = Blocks<D, kChannels>;

  // A sequence's state has D N floats.
  static void run(ThreadPool& pool, const SelectiveScanInputs& in, StateLayer states, const StateStep& step) {
    each_sequence(pool, step, states, Channels::kCount, [&](float* state, int part, int start, int count) {
      const int first = part * kChannels;
      Channels::at(part, [&](auto width) { scan<width>(in, state + int64_t{first} * N, first, start, start + count); });
    });
  }

 private:
  // Tokens [start, end) of the step, of one sequence, through channels from `first` on.
  template <int Width>
  static void scan(const SelectiveScanInputs& in, float* h, int first, int start, int end) {
    using Row = Vectors<Width>;
    for (int t = start; t < end; ++t) {
      const auto dt = Row::load(in.dt.row(t) + first);
      auto added = Row::load(in.u.row(t) + first), y = Row::zero();
      unroll<Row::kCount>([&](auto c) { added.at[c] = dt.at[c] * added.at[c]; });
      for (int n = 0; n < N; ++n) {
        const VF b = VF::broadcast(in.B.row(t)[n]), gate = VF::broadcast(in.C.row(t)[n]);
        const float* const A = in.A + int64_t{n} * D + first;
        float* const row = h + n * Width;
        unroll<Row::kCount>([&](auto c) {
          const VF decay = exp_nonpositive(dt.at[c] * Row::load_one(A, c));
          const VF s = fma(added.at[c], b, decay * Row::load_one(row, c));
          Row::store_one(s, row, c);
          y.at[c] = fma(gate, s, y.at[c]);
        });
      }
      y.store(in.y.row(t) + first);
    }
  }
};

}  // namespace es
