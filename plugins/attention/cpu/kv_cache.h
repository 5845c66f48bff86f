// The paged KV cache of one layer (Kwon et al., "Efficient Memory Management for LLM Serving with PagedAttention",
// 2023): where a position's keys and values lie, and how a step writes its own.
#pragma once
#include <algorithm>
#include <cstdint>

#include "cpu/element.h"
#include "cpu/tensor.h"
#include "cpu/thread_pool.h"

namespace es {

// What the elements of a cache are multiples of: nothing, a scale for each token and key-value head, which lies in the
// block beside them, or a scale for each head that is known beforehand.
enum class KvScaling { kNone, kToken, kHead };

template <class E>
struct PerToken : E {};
template <class E>
struct PerHead : E {};

template <class E>
constexpr KvScaling kScaling = KvScaling::kNone;
template <class E>
constexpr KvScaling kScaling<PerToken<E>> = KvScaling::kToken;
template <class E>
constexpr KvScaling kScaling<PerHead<E>> = KvScaling::kHead;

// One layer's part of every block: block b's begins at data + b * block_stride. Each head has its keys [D, block_size],
// transposed so that scores vectorise over tokens, then its values [block_size, Dv], then, where each token has its
// own, the scales [block_size] of keys and of values. The stride lets all layers of a block lie side by side, so that
// the cache touches memory in proportion to the blocks in use.
struct KvLayer {
  uint8_t* data;
  int64_t block_stride;               // bytes
  const float* key_scales = nullptr;  // [Hk], with KvScaling::kHead
  const float* value_scales = nullptr;
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
  static constexpr bool kTokenScales = kScaling<E> == KvScaling::kToken, kHeadScales = kScaling<E> == KvScaling::kHead;
  static constexpr int64_t kKeyBytes = int64_t{D} * BlockSize * sizeof(Element);
  static constexpr int64_t kValueBytes = int64_t{BlockSize} * Dv * sizeof(Element);
  static constexpr int64_t kScaleBytes = kTokenScales ? BlockSize * sizeof(float) : 0;
  static constexpr int64_t kHeadBytes = kKeyBytes + kValueBytes + 2 * kScaleBytes;
  static constexpr int64_t block_bytes = Hk * kHeadBytes;

  // What one head has in one block. The scales, where tokens have them, are to multiply what E loads.
  struct Head {
    uint8_t* data;
    Element* keys() const { return reinterpret_cast<Element*>(data); }
    Element* values() const { return reinterpret_cast<Element*>(data + kKeyBytes); }
    float* key_scales() const { return reinterpret_cast<float*>(data + kKeyBytes + kValueBytes); }
    float* value_scales() const { return reinterpret_cast<float*>(data + kKeyBytes + kValueBytes + kScaleBytes); }
  };
  static Head at(KvLayer layer, int64_t block, int head) {
    return {layer.data + block * layer.block_stride + head * kHeadBytes};
  }

  // Writes the keys and values of all the step's tokens.
  static void write(ThreadPool& pool, Heads k, Heads v, KvLayer layer, const AttentionStep& step) {
    constexpr int64_t kElementsATask = 8192;
    pool.run_ranges(step.num_tokens, 1 + kElementsATask / (Hk * (D + Dv)), [&](int64_t first, int64_t last, int) {
      int t = static_cast<int>(first);
      int s =
          static_cast<int>(std::upper_bound(step.query_start, step.query_start + step.num_seqs, t) - step.query_start) -
          1;
      for (; t < last; ++t) {
        while (t >= step.query_start[s + 1]) ++s;
        const int position = step.position(s, t);
        for (int head = 0; head < Hk; ++head) {
          const Head to = at(layer, step.block(s, position / BlockSize), head);
          write_token(k.at(t, head), v.at(t, head), layer, head, to, position % BlockSize);
        }
      }
    });
  }

 private:
  static void write_token(const float* k, const float* v, KvLayer layer, int head, Head to, int slot) {
    alignas(64) Element column[D];
    float key_scale = kHeadScales ? layer.key_scales[head] : 1;
    float value_scale = kHeadScales ? layer.value_scales[head] : 1;
    write_row<D>(k, column, &key_scale);
    for (int d = 0; d < D; ++d) to.keys()[d * BlockSize + slot] = column[d];
    write_row<Dv>(v, to.values() + slot * Dv, &value_scale);
    if constexpr (kTokenScales) to.key_scales()[slot] = key_scale * E::kUnit;
    if constexpr (kTokenScales) to.value_scales()[slot] = value_scale * E::kUnit;
  }

  // N elements, as multiples of *scale, which is chosen here where each token has its own.
  template <int N>
  static void write_row(const float* from, Element* to, float* scale) {
    constexpr int kLanes = VF::kLanes, kTail = N % kLanes;
    if constexpr (kTokenScales) *scale = largest<N>(from) / E::kLargest;
    const VF divisor = VF::broadcast(*scale == 0 ? 1 : *scale);
    const auto multiple = [&](VF x) {
      if constexpr (kScaling<E> == KvScaling::kNone)
        return x;
      else
        return x / divisor;
    };
    for (int i = 0; i + kLanes <= N; i += kLanes) E::store(multiple(VF::load(from + i)), to + i);
    if constexpr (kTail > 0) E::store(multiple(VF::load(from + N - kTail, kTail)), to + N - kTail, kTail);
  }

  // The largest magnitude; NaN, whose bits are larger than any number's, if there is one.
  template <int N>
  static float largest(const float* from) {
    uint32_t top = 0;
    for (int i = 0; i < N; ++i) top = std::max(top, float_bits(from[i]) & 0x7fffffff);
    return bits_float(top);
  }
};

}  // namespace es
