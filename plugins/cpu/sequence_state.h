// What recurrent operations keep of each sequence from one step to the next, and the sequences of a step.
#pragma once
#include <cstdint>

#include "cpu/thread_pool.h"

namespace es {

// The states of one operation: those of the sequence in slot i begin at data + i * stride. They are zeros before its
// first token.
struct StateLayer {
  float* data;
  int64_t stride;  // floats
};

// A step's sequences, as in EsStep: sequence s brings the tokens query_start[s] .. query_start[s + 1] - 1.
struct StateStep {
  int num_seqs;
  const int32_t* query_start;  // [num_seqs + 1]
  const int32_t* slots;        // [num_seqs]
};

// f(state, part, start, count) for each part in [0, parts) of each sequence of the step: its state, and which tokens of
// the step are its own. A part's tokens are taken one after the other by one thread, so that neither threads nor how a
// prompt was split change a bit; parts are what a kernel can compute apart, such as heads or ranges of channels.
template <class F>
void each_sequence(ThreadPool& pool, const StateStep& step, StateLayer states, int parts, F&& f) {
  pool.run(int64_t{step.num_seqs} * parts, [&](int64_t task, int) {
    const int s = step.num_seqs - 1 - static_cast<int>(task / parts);  // prompts, which take longer, come last
    const int start = step.query_start[s];
    f(states.data + step.slots[s] * states.stride, static_cast<int>(task % parts), start,
      step.query_start[s + 1] - start);
  });
}

}  // namespace es
