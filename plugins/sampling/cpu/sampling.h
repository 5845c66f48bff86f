// Sampling of next tokens, each draw by itself. The order of things is vLLM's up to the temperature and Hugging Face's
// after it: log probabilities from the raw logits; logit bias; bans (mask, bad words, n-grams); repetition (Keskar et
// al., CTRL, 2019), frequency and presence penalties; temperature; top-k; top-p (Holtzman et al., 2020) of what top-k
// left; min-p (Nguyen et al., 2024). Then a draw by inverse distribution function over the kept tokens in ascending id
// order, with number `position` of the Philox stream `seed`. Equal scores are ranked by id, the lower first,
// everywhere. plugins/sampling/reference.py says the same in NumPy.
#pragma once
#include <cmath>
#include <limits>
#include <string>

#include "sampling/cpu/abi.h"
#include "sampling/cpu/bans.h"
#include "sampling/cpu/philox.h"
#include "sampling/cpu/selection.h"

namespace es {

namespace detail {

enum class RowFault { kNone, kNan, kInfinity, kNothingLeft, kTokenOutOfRange, kNoSuchRow };

inline const char* describe(RowFault fault) {
  switch (fault) {
    case RowFault::kNan:
      return "its logits hold NaN";
    case RowFault::kInfinity:
      return "its logits hold +infinity";
    case RowFault::kNothingLeft:
      return "every token is banned";
    case RowFault::kTokenOutOfRange:
      return "its history, logit bias or bad words name a token outside the vocabulary";
    case RowFault::kNoSuchRow:
      return "there is no such row of logits";
    case RowFault::kNone:
      break;
  }
  return "";
}

// One draw. `scores` and `candidates` are its thread's scratch.
struct SampleRow {
  const EsSample& args;
  int row;  // of the arguments' arrays
  const float* logits;
  int64_t vocab;
  float* scores;          // [vocab]
  Candidate* candidates;  // [vocab + 64]

  RowFault run() {
    const bool adjusted = has_bias() || has_bans() || has_penalties();
    const Best raw = find_best(logits, vocab);
    if (raw.has_nan) return RowFault::kNan;
    if (raw.score == std::numeric_limits<float>::infinity()) return RowFault::kInfinity;
    if (args.given_token && args.given_token[row] >= 0) {
      if (!in_vocabulary(args.given_token[row])) return RowFault::kTokenOutOfRange;
      args.token[row] = args.given_token[row];
      report(raw.score);
      return RowFault::kNone;
    }
    Best best = raw;
    const float* source = logits;
    if (adjusted) {
      std::copy_n(logits, vocab, scores);
      if (!add_bias() || !ban() || !penalize()) return RowFault::kTokenOutOfRange;
      best = find_best(scores, vocab);
      source = scores;
    }
    if (best.has_nan) return RowFault::kNan;
    if (best.score == std::numeric_limits<float>::infinity()) return RowFault::kInfinity;
    if (best.score == -std::numeric_limits<float>::infinity()) return RowFault::kNothingLeft;
    const float temperature = args.temperature[row];
    args.token[row] = temperature > 0 ? draw(source, best.score, temperature) : best.token;
    report(raw.score);
    return RowFault::kNone;
  }

 private:
  // Weights are summed as float32 within a chunk and as float64 over chunks.
  static constexpr int kChunk = 1024;
  static constexpr float kLow = 0.01f;

  bool has_bias() const { return args.bias_length && args.bias_length[row] > 0; }
  bool has_penalties() const {
    return args.history && args.history[row] &&
           (args.repetition_penalty[row] != 1 || args.presence_penalty[row] != 0 || args.frequency_penalty[row] != 0);
  }

  bool has_ngram() const { return args.no_repeat_ngram_size && args.no_repeat_ngram_size[row] > 0; }
  bool has_bad_words() const { return args.bad_words_length && args.bad_words_length[row] > 0; }
  bool has_bans() const { return has_ngram() || has_bad_words() || (args.mask && args.mask[row]); }

  bool in_vocabulary(int32_t token) const { return token >= 0 && token < vocab; }

  bool add_bias() {
    if (!has_bias()) return true;
    for (int i = 0; i < args.bias_length[row]; ++i) {
      const int32_t token = args.bias_tokens[row][i];
      if (!in_vocabulary(token)) return false;
      scores[token] += args.bias_values[row][i];
    }
    return true;
  }

  bool ban() {
    constexpr float kBanned = -std::numeric_limits<float>::infinity();
    bool in_range = true;
    const auto never = [&](int32_t token) {
      if (in_vocabulary(token)) {
        scores[token] = kBanned;
      } else {
        in_range = false;
      }
    };
    if (args.mask && args.mask[row]) ban_unset(args.mask[row], vocab, kBanned, scores);
    if (!has_ngram() && !has_bad_words()) return true;
    const int32_t* const history = args.history[row];
    const int32_t prompt = args.prompt_length[row], length = args.history_length[row];
    if (has_ngram() && length >= args.no_repeat_ngram_size[row] - 1)
      each_repeated(history, length, args.no_repeat_ngram_size[row], never);
    if (has_bad_words())
      each_completing(args.bad_words[row], args.bad_words_length[row], history + prompt, length - prompt, never);
    return in_range;
  }

  bool penalize() {
    if (!has_penalties()) return true;
    const int32_t* history = args.history[row];
    const int prompt = args.prompt_length[row], length = args.history_length[row];
    auto* counts = reinterpret_cast<int32_t*>(candidates);  // of each token in the output; only history's entries
    for (int i = 0; i < length; ++i) {
      if (!in_vocabulary(history[i])) return false;
      counts[history[i]] = 0;
    }
    for (int i = prompt; i < length; ++i) ++counts[history[i]];
    for (int i = 0; i < length; ++i) {
      int32_t& count = counts[history[i]];
      if (count < 0) continue;
      float& score = scores[history[i]];
      if (std::isfinite(score)) score = penalized(score, count);
      count = -1;  // done
    }
    return true;
  }

  // Divides by the temperature. Where that is low, a last bit of the quotients would decide, or they overflow: there
  // scores are counted from the best. Returns the best of them.
  float divide(const float* source, float best, float temperature) {
    const VF divisor = VF::broadcast(temperature);
    if (temperature >= kLow && std::isfinite(best / temperature)) {
      map(source, scores, vocab, [&](VF x) { return x / divisor; });
      return best / temperature;
    }
    const VF top = VF::broadcast(best);
    map(source, scores, vocab, [&](VF x) { return (x - top) / divisor; });
    return 0;
  }

  float penalized(float score, int32_t count) const {
    const float repetition = args.repetition_penalty[row];
    score = finite(score > 0 ? score / repetition : score * repetition);
    score = finite(score - args.frequency_penalty[row] * static_cast<float>(count));
    return count > 0 ? finite(score - args.presence_penalty[row]) : score;
  }

  // Adjusting a score does not ban its token.
  static float finite(float x) {
    constexpr float kMost = std::numeric_limits<float>::max();
    return std::min(std::max(x, -kMost), kMost);
  }

  int32_t draw(const float* source, float best, float temperature) {
    best = divide(source, best, temperature);
    Cutoff cutoff;
    if (args.top_k[row] > 0 && args.top_k[row] < vocab) cutoff.raise(top_k_cutoff(args.top_k[row]));
    if (args.top_p[row] < 1) cutoff.raise(top_p_cutoff(cutoff, best, args.top_p[row]));
    if (args.min_p[row] > 0) cutoff.raise({best + std::log(args.min_p[row]), std::numeric_limits<int32_t>::max()});
    return pick(cutoff, best, philox_uniform(args.seed[row], args.position[row]));
  }

  Candidate top_k_cutoff(int64_t k) {
    const int64_t count = select_best(scores, vocab, k, candidates);
    return *std::max_element(candidates, candidates + count, better);  // the last in that order
  }

  // The weights of the kept tokens from `first` on to `last`, zero for the others, in `weights` [kChunk]; their sum.
  double weigh(const Cutoff& cutoff, float best, int64_t first, int64_t last, float* weights) const {
    constexpr int kLanes = VF::kLanes;
    const VF worst = VF::broadcast(cutoff.worst.score), top = VF::broadcast(best);
    VF sum = VF::zero();
    for (int64_t i = first; i < last; i += kLanes) {
      const int n = static_cast<int>(std::min<int64_t>(kLanes, last - i));
      const VF x = VF::load(scores + i, n);
      VF w = VF::zero();
      if (~bits(less(x, worst)) & ((1u << n) - 1)) {
        w = select(less(x, worst), VF::zero(), softmax_weight(x, top));
        float lanes[kLanes] = {};
        w.store(lanes, n);
        for (int j = 0; j < n; ++j)  // ties with the cutoff that it does not keep
          if (scores[i + j] == cutoff.worst.score && i + j > cutoff.worst.token) lanes[j] = 0;
        w = VF::load(lanes);
      }
      if (weights) w.store(weights + (i - first), n);
      sum = sum + w;
    }
    return reduce_add(sum);
  }

  Candidate top_p_cutoff(const Cutoff& cutoff, float best, float top_p) {
    double total = 0;
    for (int64_t i = 0; i < vocab; i += kChunk) total += weigh(cutoff, best, i, std::min(vocab, i + kChunk), nullptr);
    // Tokens lighter than the average of what may be left out cannot be needed: together they weigh less than that.
    const double light = (1.0 - top_p) * total / static_cast<double>(vocab);
    const float threshold = std::max(cutoff.worst.score, best + static_cast<float>(std::log(light)) - 0.01f);
    int64_t count = 0;
    each_at_least(scores, vocab, threshold, [&](int32_t token) {
      if (cutoff.keeps(scores[token], token)) candidates[count++] = {scores[token], token};
    });
    return nucleus(candidates, count, best, top_p * total);
  }

  // The first kept token at which the running sum of weights exceeds `uniform` of the total.
  int32_t pick(const Cutoff& cutoff, float best, double uniform) {
    auto* sums = reinterpret_cast<double*>(candidates);
    const int64_t chunks = (vocab + kChunk - 1) / kChunk;
    double total = 0;
    for (int64_t c = 0; c < chunks; ++c)
      total += sums[c] = weigh(cutoff, best, c * kChunk, std::min(vocab, (c + 1) * kChunk), nullptr);
    const double target = uniform * total;
    double before = 0;
    int64_t chosen = 0;
    for (int64_t c = 0; c < chunks; ++c) {
      if (sums[c] == 0) continue;
      chosen = c;
      if (before + sums[c] > target) break;
      before += sums[c];
    }
    float weights[kChunk];
    const int64_t first = chosen * kChunk, last = std::min(vocab, first + kChunk);
    weigh(cutoff, best, first, last, weights);
    int64_t token = first;
    for (int64_t i = first; i < last; ++i) {
      if (weights[i - first] == 0) continue;
      token = i;
      before += weights[i - first];
      if (before > target) break;
    }
    return static_cast<int32_t>(token);
  }

  // Log probabilities and the rank under the raw logits.
  void report(float best) {
    const int wanted = args.num_logprobs ? args.num_logprobs[row] : -1;
    const float kNan = std::numeric_limits<float>::quiet_NaN();
    if (args.logprob) args.logprob[row] = kNan;
    if (args.rank) args.rank[row] = 0;
    const int columns = args.max_logprobs;
    int32_t* top_tokens = args.top_tokens + int64_t{row} * columns;
    float* top_logprobs = args.top_logprobs + int64_t{row} * columns;
    for (int i = 0; i < columns; ++i) top_tokens[i] = -1, top_logprobs[i] = kNan;
    if (wanted < 0) return;

    double total = 0;
    const VF top = VF::broadcast(best);
    for (int64_t first = 0; first < vocab; first += kChunk) {
      VF sum = VF::zero();
      const int64_t last = std::min(vocab, first + kChunk);
      for (int64_t i = first; i < last; i += VF::kLanes) {
        const int n = static_cast<int>(std::min<int64_t>(VF::kLanes, last - i));
        const VF w = softmax_weight(VF::load(logits + i, n), top);
        sum = sum + (n == VF::kLanes ? w : first_only(w, n));
      }
      total += reduce_add(sum);
    }
    const double log_total = best + std::log(total);
    const float own = logits[args.token[row]];
    args.logprob[row] = static_cast<float>(own - log_total);
    int32_t rank = 1;
    for (int64_t i = 0; i < vocab; ++i) rank += logits[i] > own;
    args.rank[row] = rank;

    const int64_t k = std::min(wanted, columns);
    const int64_t count = k > 0 ? select_best(logits, vocab, k, candidates) : 0;
    std::sort(candidates, candidates + count, better);
    for (int64_t i = 0; i < count; ++i) {
      top_tokens[i] = candidates[i].token;
      top_logprobs[i] = static_cast<float>(candidates[i].score - log_total);
    }
  }

  static VF first_only(VF x, int n) {
    float lanes[VF::kLanes];
    x.store(lanes);
    return VF::load(lanes, n);
  }
};

}  // namespace detail

// Floats of scratch that sample() needs.
inline int64_t sample_scratch_floats(int threads, int64_t vocab) {
  return threads * (vocab / 2 * 2 + 2 + 2 * (vocab + 64));
}

// Makes args.num_draws draws from logits [num_rows, vocab]. 0, or -1 with a message when one cannot be made (its logits
// hold NaN or +infinity, all its tokens are banned, a token id is out of range); no output is valid then.
inline int sample(const EsParallel& parallel, const float* logits, int32_t num_rows, int64_t vocab,
                  const EsSample& args, float* scratch, std::string* error) {
  using detail::RowFault;
  const auto draw = [&](int64_t index, int worker) {
    const int32_t row = args.row[index];
    RowFault fault = RowFault::kNoSuchRow;
    if (row >= 0 && row < num_rows) {
      float* scores = scratch + worker * sample_scratch_floats(1, vocab);
      float* after = scores + (vocab + 1) / 2 * 2;  // a multiple of 8 bytes
      fault =
          detail::SampleRow{
              args, static_cast<int>(index), logits + row * vocab, vocab, scores, reinterpret_cast<Candidate*>(after)}
              .run();
    }
    if (fault != RowFault::kNone) args.token[index] = -static_cast<int32_t>(fault);
  };
  using Draw = decltype(draw);
  parallel.run(
      parallel.pool, args.num_draws,
      [](void* context, int64_t index, int32_t worker) { (*static_cast<Draw*>(context))(index, worker); },
      const_cast<void*>(static_cast<const void*>(&draw)));
  for (int index = 0; index < args.num_draws; ++index) {
    if (args.token[index] >= 0) continue;
    *error = "row " + std::to_string(args.row[index]) +
             " cannot be sampled: " + detail::describe(static_cast<RowFault>(-args.token[index]));
    return -1;
  }
  return 0;
}

}  // namespace es
