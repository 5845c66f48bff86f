// Finding the best of a row of scores without sorting it. Better means a higher score, then a lower token id; scores
// are not NaN, and a score of -infinity is never selected.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "cpu/simd.h"

namespace es {

struct Candidate {
  float score;
  int32_t token;
};
inline bool better(const Candidate& a, const Candidate& b) {
  return a.score != b.score ? a.score > b.score : a.token < b.token;
}

// What a row keeps: the tokens at least as good as the cutoff. By default all but those at -infinity.
struct Cutoff {
  Candidate worst{-std::numeric_limits<float>::max(), std::numeric_limits<int32_t>::max()};

  bool keeps(float score, int32_t token) const { return !better(worst, {score, token}); }
  void raise(const Candidate& to) {
    if (better(to, worst)) worst = to;
  }
};

// f(token) in ascending order for each score >= threshold; f may raise the threshold.
template <class F>
inline void each_at_least(const float* scores, int64_t n, const float& threshold, F&& f) {
  constexpr int kLanes = VF::kLanes;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    // Not less: bits of `threshold <= score`.
    uint32_t found = ~bits(less(VF::load(scores + i), VF::broadcast(threshold))) & ((1u << kLanes) - 1);
    for (; found; found &= found - 1) {
      const auto token = static_cast<int32_t>(i + __builtin_ctz(found));
      if (scores[token] >= threshold) f(token);
    }
  }
  for (; i < n; ++i)
    if (scores[i] >= threshold) f(static_cast<int32_t>(i));
}

struct Best {
  float score;
  int32_t token;
  bool has_nan;
};

// The best token of a row of any floats.
inline Best find_best(const float* scores, int64_t n) {
  constexpr int kLanes = VF::kLanes, kWays = 4;
  const VF lowest = VF::broadcast(-std::numeric_limits<float>::infinity());
  VF top[kWays] = {lowest, lowest, lowest, lowest}, nan[kWays] = {};
  int64_t i = 0;
  for (; i + kWays * kLanes <= n; i += kWays * kLanes)
    for (int w = 0; w < kWays; ++w) {
      const VF x = VF::load(scores + i + w * kLanes);
      top[w] = max(x, top[w]);
      nan[w] = nan[w] + (x - x);  // NaN from a NaN, and from an infinity, to be told apart below
    }
  float best = reduce_max(max(max(top[0], top[1]), max(top[2], top[3])));
  float odd = reduce_add((nan[0] + nan[1]) + (nan[2] + nan[3]));
  for (; i < n; ++i) {
    best = scores[i] > best ? scores[i] : best;
    odd += scores[i] - scores[i];
  }
  const bool has_nan = odd != odd && std::any_of(scores, scores + n, [](float x) { return x != x; });
  int64_t token = 0;
  const VF wanted = VF::broadcast(best);
  while (token + kLanes <= n && bits(equal(VF::load(scores + token), wanted)) == 0) token += kLanes;
  while (token < n - 1 && scores[token] != best) ++token;
  return {best, static_cast<int32_t>(token), has_nan};
}

// Room that select_best() needs.
inline int64_t select_capacity(int64_t n, int64_t k) { return std::min(n, 2 * k) + 64; }

// The min(k, n) best of a row, in no particular order, into `kept`. How many there are; fewer where others are
// -infinity.
inline int64_t select_best(const float* scores, int64_t n, int64_t k, Candidate* kept) {
  const int64_t capacity = select_capacity(n, k);
  int64_t count = 0;
  float threshold = -std::numeric_limits<float>::max();
  each_at_least(scores, n, threshold, [&](int32_t token) {
    kept[count++] = {scores[token], token};
    if (count < capacity) return;
    std::nth_element(kept, kept + k - 1, kept + count, better);
    count = k;
    // A later token with the same score as the worst kept loses the tie.
    threshold = std::nextafter(kept[k - 1].score, std::numeric_limits<float>::infinity());
  });
  if (count > k) std::nth_element(kept, kept + k - 1, kept + count, better);
  return std::min(count, k);
}

// The weight of a score in a softmax whose best score is `best`.
inline VF softmax_weight(VF scores, VF best) { return exp(scores - best); }

// The worst of the shortest list of best candidates whose weights sum to at least `mass`. Quickselect by weight.
inline Candidate nucleus(Candidate* candidates, int64_t count, float best, double mass) {
  int64_t first = 0, last = count;
  while (last - first > 1) {
    const int64_t middle = first + (last - first) / 2;
    std::nth_element(candidates + first, candidates + middle - 1, candidates + last, better);
    double weight = 0;
    for (int64_t i = first; i < middle; ++i) weight += expf_(candidates[i].score - best);
    if (weight >= mass) {
      last = middle;
    } else {
      mass -= weight;
      first = middle;
    }
  }
  return candidates[first];
}

}  // namespace es
