// The C interface of the sampler, a library that knows no model; runtime/executors/sampler_abi.py mirrors it.
// Functions give 0, or -1 with a message in es_sampler_error(). Pointers stay owned by the caller.
#pragma once
#include <cstdint>

#include "cpu/abi.h"

extern "C" {

struct EsSampler;

// D tokens to draw from rows of logits, or to report on. Per-draw arrays have D elements; a null array means that its
// option is off. New fields are added at the end: `size` says which of them the caller knows, the others are off.
struct EsSample {
  uint32_t size;  // sizeof(EsSample) as the caller knows it
  int32_t num_draws;
  int32_t max_logprobs;               // columns of top_tokens and top_logprobs
  const int32_t* row;                 // the row of logits
  const float* temperature;           // 0 means greedy, else within [2^-126, 2^100]
  const float* top_p;                 // 1 means off
  const float* min_p;                 // 0 means off
  const int32_t* top_k;               // 0 means off
  const float* repetition_penalty;    // 1 means off; over prompt and output
  const float* presence_penalty;      // 0 means off; over output
  const float* frequency_penalty;     // 0 means off; over output
  const uint64_t* seed;               // the request's generator key
  const uint64_t* position;           // its counter: the index of the output token being drawn
  const int32_t* const* history;      // prompt then output token ids, or null when no option looks at them
  const int32_t* prompt_length;       // how many of them are prompt
  const int32_t* history_length;      // how many there are in all
  const int32_t* const* bias_tokens;  // logit bias, or null
  const float* const* bias_values;    // -inf bans a token
  const int32_t* bias_length;
  const int32_t* num_logprobs;  // -1: none; n: the token's and the n best
  const int32_t* given_token;   // -1: draw one; else nothing is drawn, and this one is reported on
  const uint32_t* const* mask;  // [ceil(vocab / 32)]: bit t % 32 of word t / 32 lets token t be drawn; null: all
  const int32_t* no_repeat_ngram_size;  // 0 means off; over prompt and output
  const int32_t* const* bad_words;      // sequences of tokens that the output may not hold, each after its length
  const int32_t* bad_words_length;      // how many integers those are
  int32_t* token;                       // out: the token
  float* logprob;                       // out: its log probability under the raw logits (NaN when not asked for)
  int32_t* rank;                        // out: its rank under the raw logits, 1 is the best
  int32_t* top_tokens;                  // out: [D, max_logprobs], -1 where unused
  float* top_logprobs;                  // out: [D, max_logprobs]
};

// sizeof(EsSample) as this library knows it: options whose fields lie beyond are newer than it.
uint32_t es_sample_size(void);
const char* es_sampler_error(void);
// A sampler of rows of `vocab` logits, whose draws run on `parallel`, which must outlive it.
int es_sampler_open(const EsParallel* parallel, int64_t vocab, EsSampler** sampler);
// The same, on threads of its own.
int es_sampler_open_alone(int32_t threads, int64_t vocab, EsSampler** sampler);
void es_sampler_close(EsSampler* sampler);
// Draws from float32 logits [num_rows, vocab].
int es_sample(EsSampler* sampler, const float* logits, int32_t num_rows, const EsSample* sample);

}  // extern "C"
