// A linear recurrence of each channel by itself: h <- a h + x (the RG-LRU of Griffin; De et al., 2024), or, where sums
// take the place of products and maxima that of sums, h <- max(a + h, x) (the stabilizer of mLSTM; Beck et al., 2024).
#pragma once
#include "cpu/blocks.h"
#include "cpu/sequence_state.h"
#include "cpu/simd.h"
#include "cpu/tensor.h"

namespace es {

// The step's x, a and h [T, D].
struct LinearRecurrenceInputs {
  Rows x, a;
  MutRows h;
};

template <int D, bool MaxPlus>
struct LinearRecurrence {
  static constexpr int kChannels = 4 * VF::kLanes;
  using Channels = Blocks<D, kChannels>;

  // A sequence's state has D floats.
  static void run(ThreadPool& pool, const LinearRecurrenceInputs& in, StateLayer states, const StateStep& step) {
    each_sequence(pool, step, states, Channels::kCount, [&](float* state, int part, int start, int count) {
      const int first = part * kChannels;
      Channels::at(part, [&](auto width) { scan<width>(in, state + first, first, start, start + count); });
    });
  }

 private:
  // Tokens [start, end) of the step, of one sequence, through channels from `first` on.
  template <int Width>
  static void scan(const LinearRecurrenceInputs& in, float* state, int first, int start, int end) {
    using Row = Vectors<Width>;
    auto h = Row::load(state);
    for (int t = start; t < end; ++t) {
      const auto x = Row::load(in.x.row(t) + first), a = Row::load(in.a.row(t) + first);
      unroll<Row::kCount>(
          [&](auto c) { h.at[c] = MaxPlus ? max(a.at[c] + h.at[c], x.at[c]) : fma(a.at[c], h.at[c], x.at[c]); });
      h.store(in.h.row(t) + first);
    }
    h.store(state);
  }
};

}  // namespace es
