// Attention of a tile of query rows over one stretch of the context: the arithmetic, with no threads in it.
//
// The rows of a tile are the query heads that share one key-value head, for one or more consecutive tokens, token by
// token. A row's arithmetic is fixed by its own position alone:
// - the context is cut at multiples of kSplit tokens; each split is attended by itself with an online softmax (Milakov
//   and Gimelshein, 2018; Dao et al., FlashAttention, 2022) over key tiles of kKeys tokens, in ascending order;
// - the splits are merged in ascending order (as Flash-Decoding does, but always and in one order).
// Keys a row must not see contribute an exact zero, so it does not matter which rows shared its tile, how its prompt
// was chunked, or whether its splits were computed by one thread or by several.
#pragma once
#include <cmath>
#include <limits>

#include "attention/cpu/kv_cache.h"
#include "cpu/simd.h"
#include "cpu/unroll.h"

namespace es {

struct AttentionOptions {
  float scale;          // of the scores
  float softcap;        // c: scores become c tanh(score / c); 0: off
  int window;           // w: the row at position i sees keys i - w + 1 .. i; 0: all keys up to i
  int chunk;            // c: it sees those from the last multiple of c on, up to i; 0: all
  const float* sinks;   // [H] a logit for each head that only joins the denominator; null: none
  const float* slopes;  // [H] what a score loses for each token between its key and the row; null: nothing

  int first_visible(int position) const {
    const int in_window = window > 0 ? std::max(0, position - window + 1) : 0;
    return chunk > 0 ? std::max(in_window, position / chunk * chunk) : in_window;
  }
};

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// exp(from - to) for from <= to; what is still empty (-infinity) weighs nothing.
inline float attention_weight(float from, float to) {
  return from == kMinusInfinity ? 0.0f : first_lane(exp_nonpositive(VF::broadcast(from - to)));
}

// A softmax in progress over one row: sum and output are relative to exp(max).
template <int Dv>
struct RowState {
  static constexpr int kPadded = (Dv + VF::kLanes - 1) / VF::kLanes * VF::kLanes;
  float max, sum, output[kPadded];

  void clear() { *this = RowState{kMinusInfinity, 0.0f, {}}; }

  // Folds in the row's next split.
  void merge(const RowState& next) {
    const float top = max < next.max ? next.max : max;
    const float mine = attention_weight(max, top), theirs = attention_weight(next.max, top);
    max = top;
    sum = std::fma(sum, mine, next.sum * theirs);
    for (int d = 0; d < kPadded; d += VF::kLanes)
      fma(VF::load(output + d), VF::broadcast(mine), VF::load(next.output + d) * VF::broadcast(theirs))
          .store(output + d);
  }

  void finish(const float* sink, float* out) const {
    const float top = sink && *sink > max ? *sink : max;
    const float mine = attention_weight(max, top);
    const float denominator = sink ? std::fma(sum, mine, attention_weight(*sink, top)) : sum * mine;
    const VF scale = VF::broadcast(mine / denominator);
    for (int d = 0; d < Dv; d += VF::kLanes) {
      const VF y = VF::load(output + d) * scale;
      d + VF::kLanes <= Dv ? y.store(out + d) : y.store(out + d, Dv - d);
    }
  }
};

// G query heads share a key-value head.
template <class E, int G, int Hk, int D, int Dv, int BlockSize>
struct RowTile {
  using Cache = KvCache<E, Hk, D, Dv, BlockSize>;
  using Element = typename E::Type;
  using State = RowState<Dv>;
  static constexpr int kLanes = VF::kLanes, kGranule = Cache::kGranule;
  static constexpr int kSplit = 256, kKeys = 64;
  static constexpr int kTokens = std::max(1, 48 / G), kRows = kTokens * G;
  static constexpr int kKeyVectors = kKeys / kLanes, kValueVectors = State::kPadded / kLanes;

  float q[kRows * D];           // scaled
  float scores[kRows * kKeys];  // of the current key tile; then exp(score - max) times the value's scale
  float sums[kRows * kLanes];   // of the weights, lane by lane
  float decay[kRows];           // of what came before the current key tile
  State state[kRows];           // of the current split
  State total[kRows];           // of the splits merged so far

  int tokens, rows;              // in use
  int first_head;                // the query head of row 0
  int position;                  // of the first token
  float key_scale, value_scale;  // of the head, where it has them

  // Takes tokens t .. t + count - 1 of the step, the first at `position_`, and the query heads of key-value head
  // `head`.
  void load(Heads queries, int t, int count, int head, int position_, float scale) {
    tokens = count, rows = count * G, position = position_, first_head = head * G;
    for (int r = 0; r < rows; ++r) {
      const float* from = queries.at(t + r / G, first_head + r % G);
      for (int d = 0; d < D; ++d) q[r * D + d] = from[d] * scale;
    }
  }

  // Attends to the part of split number `split` that the rows see; the result is in `state`.
  void attend(int split, KvLayer layer, const AttentionStep& step, int sequence, int head,
              const AttentionOptions& options) {
    for (int r = 0; r < rows; ++r) state[r].clear();
    std::fill_n(sums, rows * kLanes, 0.0f);
    if constexpr (Cache::kHeadScales) {
      key_scale = layer.key_scales[head] * E::kUnit;
      value_scale = layer.value_scales[head] * E::kUnit;
    }
    const int first = std::max(split * kSplit, options.first_visible(position));
    const int last = std::min((split + 1) * kSplit, position + tokens) - 1;
    const int groups = (rows + kMaxGroup - 1) / kMaxGroup;
    Keys next = find(layer, step, sequence, head, first / kKeys * kKeys, first, last);
    for (int start = next.start; start <= last; start += kKeys) {
      const Keys keys = next;
      next = find(layer, step, sequence, head, start + kKeys, first, last);
      for (int g = 0; g < groups; ++g) {
        const int row = g * rows / groups;
        attend_group((g + 1) * rows / groups - row, row, keys, groups == 1 ? &next : nullptr, options);
      }
    }
    for (int r = 0; r < rows; ++r) state[r].sum = reduce_add(VF::load(sums + r * kLanes));
  }

 private:
  // Rows whose accumulators fit the registers together, and vectors of keys or values beside each.
  static constexpr int kMaxGroup = 6;
  static constexpr int vectors_beside(int group) { return kLanes == 16 ? 4 : group == 1 ? 8 : group <= 3 ? 4 : 2; }

  // A key tile: the kKeys positions from `start` on, and where each granule of them lies.
  struct Keys {
    int start;
    const Element* k[kKeys / kGranule];
    const Element* v[kKeys / kGranule];
    const float* key_scales[kKeys / kGranule];  // where each token has its own
    const float* value_scales[kKeys / kGranule];
  };

  // Only granules that hold a position in [first, last] are looked up: others may have no block. Their pointers go to
  // a granule that has one; whatever is read there is masked.
  static Keys find(KvLayer layer, const AttentionStep& step, int sequence, int head, int start, int first, int last) {
    Keys keys{start, {}, {}, {}, {}};
    for (int i = 0; i < kKeys / kGranule; ++i) {
      const int lowest = first / kGranule * kGranule, highest = last / kGranule * kGranule;
      const int at = std::min(std::max(start + i * kGranule, lowest), highest);
      const typename Cache::Head own = Cache::at(layer, step.block(sequence, at / BlockSize), head);
      keys.k[i] = own.keys() + at % BlockSize;
      keys.v[i] = own.values() + at % BlockSize * Dv;
      if constexpr (Cache::kTokenScales) {
        keys.key_scales[i] = own.key_scales() + at % BlockSize;
        keys.value_scales[i] = own.value_scales() + at % BlockSize;
      }
    }
    return keys;
  }

  // `x`, of the tokens of vector v, times their scales.
  static VF scaled(VF x, int v, const float* const* of_tokens, float of_head) {
    if constexpr (Cache::kTokenScales)
      return x * VF::load(of_tokens[v * kLanes / kGranule] + v * kLanes % kGranule);
    else if constexpr (Cache::kHeadScales)
      return x * VF::broadcast(of_head);
    else
      return x;
  }

  // Asks for a line of the key tile that comes next. Only into the second level of cache: the first cannot have enough
  // requests in flight to use the memory's bandwidth, and the blocks are too short for the hardware to run ahead.
  static void prefetch(const Element* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }

  void attend_group(int size, int row, const Keys& keys, const Keys* ahead, const AttentionOptions& options) {
    switch (size) {
      case 1:
        return attend_group<1>(row, keys, ahead, options);
      case 2:
        return attend_group<2>(row, keys, ahead, options);
      case 3:
        return attend_group<3>(row, keys, ahead, options);
      case 4:
        return attend_group<4>(row, keys, ahead, options);
      case 5:
        return attend_group<5>(row, keys, ahead, options);
      case 6:
        return attend_group<6>(row, keys, ahead, options);
    }
  }

  template <int M>
  void attend_group(int row, const Keys& keys, const Keys* ahead, const AttentionOptions& options) {
    constexpr int kStep = vectors_beside(M);
    const int first = std::max(0, options.first_visible(position + row / G) - keys.start);
    const int last = std::min(kKeys - 1, position + (row + M - 1) / G - keys.start);
    if (first > last) return;
    const int first_vector = first / kLanes / kStep * kStep;
    const int end_vector = (last / kLanes / kStep + 1) * kStep;
    for (int v = first_vector; v < end_vector; v += kStep) score<M, kStep>(row, v, keys, ahead);
    for (int r = row; r < row + M; ++r) softmax(r, first_vector, end_vector, keys, options);
    accumulate<M>(row, first, last, keys, ahead);
  }

  // sum[m][n] += a(m) * b(n). The fewer factors are held and the others come one by one, so that everything stays in
  // registers.
  template <int M, int N, class A, class B>
  ES_ALWAYS_INLINE static void add_outer_product(VF (&sum)[M][N], A&& a, B&& b) {
    if constexpr (M < N) {
      VF held[M];
      unroll<M>([&](auto m) ES_ALWAYS_INLINE { held[m] = a(m); });
      unroll<N>([&](auto n) ES_ALWAYS_INLINE {
        const VF x = b(n);
        unroll<M>([&](auto m) ES_ALWAYS_INLINE { sum[m][n] = fma(held[m], x, sum[m][n]); });
      });
    } else {
      VF held[N];
      unroll<N>([&](auto n) ES_ALWAYS_INLINE { held[n] = b(n); });
      unroll<M>([&](auto m) ES_ALWAYS_INLINE {
        const VF x = a(m);
        unroll<N>([&](auto n) ES_ALWAYS_INLINE { sum[m][n] = fma(x, held[n], sum[m][n]); });
      });
    }
  }

  // scores[row .. row + M)[vectors v .. v + N) = q k^T, each summed over d in ascending order.
  template <int M, int N>
  void score(int row, int v, const Keys& keys, const Keys* ahead) {
    const Element* k[N];
    unroll<N>([&](auto n)
                  ES_ALWAYS_INLINE { k[n] = keys.k[(v + n) * kLanes / kGranule] + (v + n) * kLanes % kGranule; });
    const float* query = q + row * D;
    VF sum[M][N];
    unroll<M>([&](auto m) ES_ALWAYS_INLINE { unroll<N>([&](auto n) ES_ALWAYS_INLINE { sum[m][n] = VF::zero(); }); });
    for (int d = 0; d < D; ++d) {
      if (ahead)
        for (int i = 0; i < N * kLanes / kGranule; ++i) prefetch(ahead->k[v * kLanes / kGranule + i] + d * BlockSize);
      add_outer_product<M, N>(
          sum, [&](auto m) ES_ALWAYS_INLINE { return VF::broadcast(query[m * D + d]); },
          [&](auto n) ES_ALWAYS_INLINE { return E::load(k[n] + d * BlockSize); });
    }
    unroll<M>([&](auto m) ES_ALWAYS_INLINE {
      unroll<N>([&](auto n) ES_ALWAYS_INLINE {
        scaled(sum[m][n], v + n, keys.key_scales, key_scale).store(scores + (row + m) * kKeys + (v + n) * kLanes);
      });
    });
  }

  // Turns row r's scores into weights relative to the new maximum, times the scales of the values, and updates the
  // maximum, the sum and the decay. What becomes of keys that no row of the group sees is not read.
  void softmax(int r, int first_vector, int end_vector, const Keys& keys, const AttentionOptions& options) {
    const int own = position + r / G;
    const int first = options.first_visible(own) - keys.start, last = own - keys.start;
    float* row = scores + r * kKeys;
    const float slope = options.slopes ? options.slopes[first_head + r % G] : 0.0f;
    VF top = VF::broadcast(state[r].max);
    for (int v = first_vector; v < end_vector; ++v) {
      VF s = VF::load(row + v * kLanes);
      if (options.softcap > 0) s = VF::broadcast(options.softcap) * tanh(s / VF::broadcast(options.softcap));
      if (options.slopes) s = fma(VF::broadcast(-slope), distances(last - v * kLanes), s);
      if (v * kLanes < first || (v + 1) * kLanes - 1 > last) s = mask(s, first - v * kLanes, last - v * kLanes);
      s.store(row + v * kLanes);
      top = max(top, s);
    }
    const float highest = reduce_max(top);
    decay[r] = attention_weight(state[r].max, highest);
    state[r].max = highest;
    // While every key is masked any finite reference will do: the weights are zero.
    const VF reference = VF::broadcast(highest == kMinusInfinity ? 0.0f : highest);
    VF sum = VF::load(sums + r * kLanes) * VF::broadcast(decay[r]);
    for (int v = first_vector; v < end_vector; ++v) {
      const VF weight = exp_nonpositive(VF::load(row + v * kLanes) - reference);
      scaled(weight, v, keys.value_scales, value_scale).store(row + v * kLanes);
      sum = sum + weight;
    }
    sum.store(sums + r * kLanes);
  }

  // `distance` of lane 0's key, and of the keys behind it one less each.
  static VF distances(int distance) {
    alignas(64) float lane[kLanes];
    for (int i = 0; i < kLanes; ++i) lane[i] = static_cast<float>(distance - i);
    return VF::load(lane);
  }

  // Keeps lanes first .. last, -infinity elsewhere.
  static VF mask(VF s, int first, int last) {
    alignas(64) float lane[kLanes];
    for (int i = 0; i < kLanes; ++i) lane[i] = i >= first && i <= last ? 1.0f : 0.0f;
    return select(equal(VF::load(lane), VF::zero()), VF::broadcast(kMinusInfinity), s);
  }

  // output[row .. row + M) = output * decay + weights v, each summed over the keys first .. last in ascending order.
  template <int M>
  void accumulate(int row, int first, int last, const Keys& keys, const Keys* ahead) {
    constexpr int kStep = std::min(vectors_beside(M), kValueVectors);
    constexpr int kLast = (kValueVectors - 1) / kStep * kStep;
    for (int c = 0; c < kLast; c += kStep) accumulate_columns<M, kStep, 0>(row, c, first, last, keys, ahead);
    accumulate_columns<M, kValueVectors - kLast, Dv % kLanes>(row, kLast, first, last, keys, ahead);
  }

  // Columns of N vectors from vector c on; only the first Tail lanes of the last vector exist (0: all).
  template <int M, int N, int Tail>
  void accumulate_columns(int row, int c, int first, int last, const Keys& keys, const Keys* ahead) {
    VF sum[M][N];
    unroll<M>([&](auto m) ES_ALWAYS_INLINE {
      const VF scale = VF::broadcast(decay[row + m]);
      unroll<N>([&](auto n)
                    ES_ALWAYS_INLINE { sum[m][n] = VF::load(state[row + m].output + (c + n) * kLanes) * scale; });
    });
    for (int i = first / kGranule; i <= last / kGranule; ++i) {
      const Element* v = keys.v[i] + c * kLanes;
      const float* weights = scores + row * kKeys + i * kGranule;
      const int end = std::min(kGranule - 1, last - i * kGranule);
      for (int j = std::max(0, first - i * kGranule); j <= end; ++j) {
        if (ahead) prefetch(ahead->v[i] + j * Dv + c * kLanes);
        add_outer_product<M, N>(
            sum, [&](auto m) ES_ALWAYS_INLINE { return VF::broadcast(weights[m * kKeys + j]); },
            [&](auto n) ES_ALWAYS_INLINE {
              const Element* at = v + j * Dv + n * kLanes;
              if constexpr (Tail > 0 && n == N - 1)
                return E::load(at, Tail);
              else
                return E::load(at);
            });
      }
    }
    unroll<M>([&](auto m) ES_ALWAYS_INLINE {
      unroll<N>([&](auto n) ES_ALWAYS_INLINE { sum[m][n].store(state[row + m].output + (c + n) * kLanes); });
    });
  }
};

}  // namespace es
