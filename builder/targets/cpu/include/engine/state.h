// The slots in which an emitted engine keeps the states of sequences.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "cpu/sequence_state.h"
#include "cpu/thread_pool.h"
#include "engine/runtime.h"

namespace es::engine {

// `bytes` for each of `count` sequences, of which only the slots in use take room. A sequence can be carried on only
// from where it stands; one that begins finds zeros. Without bytes nothing is kept or checked.
class StateSlots {
 public:
  StateSlots(int count, int64_t bytes)
      : bytes_(bytes), memory_(count * bytes), tokens_(bytes ? count : 0, kNowhere), taken_(tokens_.size()) {}

  StateLayer layer(int64_t offset) const {
    return {reinterpret_cast<float*>(memory_.data() + offset), bytes_ / static_cast<int64_t>(sizeof(float))};
  }

  // Refuses a step whose slots are not those of its sequences; clears the slots of sequences that begin with it.
  void begin(ThreadPool& pool, const EsStep& s) {
    if (bytes_ == 0) return;
    std::fill(taken_.begin(), taken_.end(), false);
    for (int i = 0; i < s.num_seqs; ++i) {
      const int32_t slot = s.state_slots[i], start = first_token(s, i), slots = static_cast<int32_t>(tokens_.size());
      require(slot >= 0 && slot < slots, "state_slots", slot, slots - 1);
      require(!taken_[slot], "a state slot of two sequences", slot, slots - 1);
      taken_[slot] = true;
      if (start != 0 && tokens_[slot] != start) {
        throw Error("the state of slot %d stands at token %d, not at %d, where its sequence goes on", slot,
                    tokens_[slot], start);
      }
    }
    for (int i = 0; i < s.num_seqs; ++i) {
      if (first_token(s, i) == 0) clear(pool, s.state_slots[i]);
      tokens_[s.state_slots[i]] = kNowhere;  // should the step fail
    }
  }

  void end(const EsStep& s) {
    if (bytes_ == 0) return;
    for (int i = 0; i < s.num_seqs; ++i) tokens_[s.state_slots[i]] = s.context_length[i];
  }

 private:
  static constexpr int32_t kNowhere = -1;

  static int32_t first_token(const EsStep& s, int i) {
    return s.context_length[i] - (s.query_start[i + 1] - s.query_start[i]);
  }

  void clear(ThreadPool& pool, int32_t slot) {
    uint8_t* const data = memory_.data() + slot * bytes_;
    constexpr int64_t kBytesATask = 1 << 18;
    pool.run_ranges(bytes_, kBytesATask,
                    [&](int64_t first, int64_t last, int) { std::fill(data + first, data + last, uint8_t{0}); });
  }

  int64_t bytes_;
  Memory memory_;
  std::vector<int32_t> tokens_;  // how many of its sequence's tokens each state has taken
  std::vector<bool> taken_;
};

}  // namespace es::engine
