// The paged KV cache of one layer (Kwon et al., "Efficient Memory Management for LLM Serving with PagedAttention",
// 2023): where a position's keys and values lie, and how a step writes its own.
#pragma once
#include <algorithm>
#include <cstdint>

#include "cpu/element.h"
#include "cpu/tensor.h"
#include "cpu/thread_pool.h"

namespace es {

// One layer's part of every block: block b's begins at data + b * block_stride, with the keys [Hk, D, block_size],
// transposed so that scores vectorise over tokens, then the values [Hk, block_size, Dv]. The stride lets all layers of
// a block lie side by side, so that the cache touches memory in proportion to the blocks in use.
struct KvLayer {
  uint8_t* data;
  int64_t block_stride;  // bytes
};

// A step's sequences, as in EsStep, with the block table of the layer's cache group. Sequence s brings the tokens
// query_start[s] .. query_start[s + 1] - 1 of the step; they are the last of its context.
struct AttentionStep {
  int num_tokens, num_seqs, max_blocks;
  const int32_t* query_start;     // [num_seqs + 1]
  const int32_t* context_length;  // [num_seqs], this step's tokens included
  const int32_t* block_table;     // [num_seqs, max_blocks]; -1 where a block was freed

  // The absolute position of the step's token t, which belongs to sequence s.
  int position(int s, int t) const { return context_length[s] - query_start[s + 1] + t; }
  int64_t block(int s, int index) const { return block_table[int64_t{s} * max_blocks + index]; }
};

template <class E, int Hk, int D, int Dv, int BlockSize>
struct KvCache {
  using Element = typename E::Type;
  // The tokens that are sure to lie side by side in one block, whatever its size.
  static constexpr int kGranule = 16;
  static_assert(BlockSize % kGranule == 0, "a block holds a multiple of 16 tokens");
  static constexpr int64_t kKeysAHead = int64_t{D} * BlockSize, kValuesAHead = int64_t{BlockSize} * Dv;
  static constexpr int64_t kKeyBytes = Hk * kKeysAHead * sizeof(Element);
  static constexpr int64_t block_bytes = kKeyBytes + Hk * kValuesAHead * sizeof(Element);

  static Element* keys(KvLayer layer, int64_t block, int head) {
    return reinterpret_cast<Element*>(layer.data + block * layer.block_stride) + head * kKeysAHead;
  }
  static Element* values(KvLayer layer, int64_t block, int head) {
    return reinterpret_cast<Element*>(layer.data + block * layer.block_stride + kKeyBytes) + head * kValuesAHead;
  }

  // Writes the keys and values of all the step's tokens.
  static void write(ThreadPool& pool, Heads k, Heads v, KvLayer layer, const AttentionStep& step) {
    constexpr int64_t kElementsATask = 8192;
    pool.run_ranges(step.num_tokens, 1 + kElementsATask / (Hk * (D + Dv)), [&](int64_t first, int64_t last, int) {
      int t = static_cast<int>(first);
      int s =
          static_cast<int>(std::upper_bound(step.query_start, step.query_start + step.num_seqs, t) - step.query_start) -
          1;
      while (t < last) {
        while (t >= step.query_start[s + 1]) ++s;
        const int position = step.position(s, t), slot = position % BlockSize;
        const int end = std::min(static_cast<int>(last), step.query_start[s + 1]);
        const int count = std::min(BlockSize - slot, end - t);
        write_run(k, v, layer, step.block(s, position / BlockSize), slot, t, count);
        t += count;
      }
    });
  }

 private:
  // `count` tokens from t on, to the slots from `slot` on of one block.
  static void write_run(Heads k, Heads v, KvLayer layer, int64_t block, int slot, int t, int count) {
    constexpr int kLanes = VF::kLanes, kTail = Dv % kLanes;
    for (int head = 0; head < Hk; ++head) {
      Element* to_k = keys(layer, block, head) + slot;
      for (int d = 0; d < D; ++d)
        for (int j = 0; j < count; ++j) to_k[d * BlockSize + j] = E::narrow(k.at(t + j, head)[d]);
      for (int j = 0; j < count; ++j) {
        const float* from = v.at(t + j, head);
        Element* to = values(layer, block, head) + (slot + j) * Dv;
        for (int d = 0; d + kLanes <= Dv; d += kLanes) E::store(VF::load(from + d), to + d);
        if constexpr (kTail > 0) E::store(VF::load(from + Dv - kTail, kTail), to + Dv - kTail, kTail);
      }
    }
  }
};

}  // namespace es
