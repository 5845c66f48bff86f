// Tokens that may not be drawn next: those that would repeat an n-gram, complete a bad word, or lie outside a mask.
#pragma once
#include <algorithm>
#include <cstdint>

namespace es {

// f(token) for each token that followed, anywhere before, the last n - 1 tokens: an n-gram may be there once.
template <class F>
inline void each_repeated(const int32_t* history, int32_t length, int32_t n, F&& f) {
  const int32_t context = n - 1;
  const int32_t* const last = history + length - context;
  for (int32_t i = 0; i + context < length; ++i)
    if (std::equal(last, last + context, history + i)) f(history[i + context]);
}

// f(token) for each token that would complete a word, a sequence of tokens, at the end of the output.
template <class F>
inline void each_completing(const int32_t* words, int32_t words_length, const int32_t* output, int32_t length, F&& f) {
  for (int32_t i = 0; i < words_length; i += words[i] + 1) {
    const int32_t context = words[i] - 1;
    const int32_t* const word = words + i + 1;
    if (context <= length && std::equal(word, word + context, output + length - context)) f(word[context]);
  }
}

// Sets the scores [vocab] of all tokens whose bit of the mask is not set. Words of a mask are mostly all or nothing.
inline void ban_unset(const uint32_t* mask, int64_t vocab, float banned, float* scores) {
  for (int64_t first = 0; first < vocab; first += 32) {
    const int64_t count = std::min<int64_t>(32, vocab - first);
    uint32_t unset = ~mask[first / 32];
    if (unset == ~0u) {
      std::fill_n(scores + first, count, banned);
      continue;
    }
    if (count < 32) unset &= (1u << count) - 1;
    for (; unset; unset &= unset - 1) scores[first + __builtin_ctz(unset)] = banned;
  }
}

}  // namespace es
