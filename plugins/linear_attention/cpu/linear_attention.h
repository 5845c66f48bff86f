// Linear attention with decay and delta rule: each head's memory is a matrix, updated token after token.
//
// Of a head with keys of Dk and values of Dv elements, columns of its state [Dk, Dv] are independent of each other. So
// the work is shared out as (sequence, head, block of columns), and a block of the state lies in one piece, for the
// first level of the cache. There is one order of arithmetic, whatever a step holds of a sequence.
#pragma once
#include <cmath>
#include <cstdint>

#include "cpu/blocks.h"
#include "cpu/sequence_state.h"
#include "cpu/simd.h"
#include "cpu/tensor.h"

namespace es {

// What the state is multiplied by before a token is added: nothing, a factor for a head, or one for each key channel.
enum class Decay { kNone, kHead, kChannel };

// The step's q and k [T, Hk, Dk], v [T, H, Dv], logarithm of the decay [T, H] or [T, H, Dk], beta [T, H]; out [T, H,
// Dv].
struct LinearAttentionInputs {
  Heads q, k, v, decay, beta;
  MutHeads out;
  float scale;
  float norm_epsilon;  // of the lengths of q and k, where they are divided by them
};

// H heads over Hk heads of queries and keys; head h reads head h / (H / Hk). For each token, with a = exp(decay):
//
//   S <- diag(a) S,   S <- S + k (v - S^T k)^T beta,   out = S^T q scale
//
// and without the delta rule S <- diag(a) S + k v^T. `Normalize`: q and k are divided by their lengths first.
template <int H, int Hk, int Dk, int Dv, Decay D, bool Delta, bool Normalize>
struct LinearAttention {
  static_assert(H % Hk == 0, "the heads of keys divide those of values");
  static constexpr int kColumns = 4 * VF::kLanes;
  using Columns = Blocks<Dv, kColumns>;

  // A sequence's state has H Dk Dv floats.
  static void run(ThreadPool& pool, const LinearAttentionInputs& in, StateLayer states, const StateStep& step) {
    each_sequence(pool, step, states, H * Columns::kCount, [&](float* state, int part, int start, int count) {
      const int head = part / Columns::kCount, block = part % Columns::kCount, first = block * kColumns;
      Columns::at(block, [&](auto width) {
        scan<width>(in, state + (int64_t{head} * Dv + first) * Dk, head, first, start, start + count);
      });
    });
  }

 private:
  // What all columns need of a token.
  struct Token {
    alignas(64) float q[Dk], k[Dk], a[D == Decay::kChannel ? Dk : 1];
    alignas(64) float ka[Delta ? Dk : 1];  // k times the decay

    void load(const LinearAttentionInputs& in, int t, int head) {
      const int key_head = head / (H / Hk);
      copy(in.q.at(t, key_head), in.scale, in.norm_epsilon, q);
      copy(in.k.at(t, key_head), 1, in.norm_epsilon, k);
      if constexpr (D == Decay::kNone) a[0] = 1;
      if constexpr (D == Decay::kHead) a[0] = expf_(*in.decay.at(t, head));
      if constexpr (D == Decay::kChannel) map(in.decay.at(t, head), a, Dk, [](VF x) { return exp(x); });
      if constexpr (Delta)
        for (int i = 0; i < Dk; ++i) ka[i] = k[i] * a[D == Decay::kChannel ? i : 0];
    }

    static void copy(const float* x, float scale, float epsilon, float* y) {
      if constexpr (Normalize) {
        VF squares = VF::zero();
        map(x, y, Dk, [&](VF v) {
          squares = fma(v, v, squares);
          return v;
        });
        scale = scale / std::sqrt(reduce_add(squares) + epsilon);
      }
      map(x, y, Dk, [&](VF v) { return v * VF::broadcast(scale); });
    }
  };

  // Tokens [start, end) of the step, of one sequence, through columns of a head.
  template <int Width>
  static void scan(const LinearAttentionInputs& in, float* S, int head, int first, int start, int end) {
    Token token[2];
    token[0].load(in, start, head);
    auto known = remembered<Width>(S, token[0]);
    for (int t = start; t < end; ++t) {
      const int now = (t - start) % 2, next = t + 1 < end ? 1 - now : now;
      if (next != now) token[next].load(in, t + 1, head);
      auto added = Vectors<Width>::load(in.v.at(t, head) + first);
      if constexpr (Delta) {
        const VF beta = VF::broadcast(*in.beta.at(t, head));
        unroll<Vectors<Width>::kCount>([&](auto c) { added.at[c] = (added.at[c] - known.at[c]) * beta; });
      }
      known = step(S, token[now], token[next], added, in.out.at(t, head) + first);
    }
  }

  // S^T k of the decayed state.
  template <int Width>
  static Vectors<Width> remembered(const float* S, const Token& token) {
    auto sum = Vectors<Width>::zero();
    if constexpr (Delta)
      for (int i = 0; i < Dk; ++i) {
        const VF ka = VF::broadcast(token.ka[i]);
        const float* const row = S + int64_t{i} * Width;
        unroll<sum.kCount>([&](auto c) { sum.at[c] = fma(ka, Vectors<Width>::load_one(row, c), sum.at[c]); });
      }
    return sum;
  }

  // Decays the state and adds k `added`^T, writes the token's output, and gives remembered() of the next token.
  template <int Width>
  static Vectors<Width> step(float* S, const Token& now, const Token& next, const Vectors<Width>& added, float* y) {
    using Row = Vectors<Width>;
    auto out = Row::zero(), sum = Row::zero();
    VF a = VF::broadcast(now.a[0]);
    for (int i = 0; i < Dk; ++i) {
      if constexpr (D == Decay::kChannel) a = VF::broadcast(now.a[i]);
      const VF q = VF::broadcast(now.q[i]), k = VF::broadcast(now.k[i]);
      float* const row = S + int64_t{i} * Width;
      unroll<Row::kCount>([&](auto c) {
        const VF old = Row::load_one(row, c);
        const VF s = fma(k, added.at[c], D == Decay::kNone ? old : old * a);
        Row::store_one(s, row, c);
        out.at[c] = fma(q, s, out.at[c]);
        if constexpr (Delta) sum.at[c] = fma(VF::broadcast(next.ka[i]), s, sum.at[c]);
      });
    }
    out.store(y);
    return sum;
  }
};

}  // namespace es
