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

// f(token) for each token whose bit of the mask is not set.
template <class F>
inline void each_unset(const uint32_t* mask, int64_t vocab, F&& f) {
  for (int64_t word = 0; word * 32 < vocab; ++word) {
    for (uint32_t unset = ~mask[word]; unset; unset &= unset - 1) {
      const int64_t token = word * 32 + __builtin_ctz(unset);
      if (token >= vocab) break;
      f(static_cast<int32_t>(token));
    }
  }
}

}  // namespace es
