// The C interface between a compiled engine and the runtime; runtime/executors/cpu_abi.py mirrors it with ctypes.
// Every function returns 0, or -1 with a message in es_last_error(). Pointers stay owned by the caller.
#pragma once
#include <cstdint>

extern "C" {

constexpr uint32_t kEsAbiVersion = 1;

struct EsEngine;

struct EsOpenArgs {
  const uint8_t* weights;     // weights.bin, mapped, 64-byte aligned
  uint64_t weights_bytes;     // its size, checked against what the engine was compiled for
  const int32_t* num_blocks;  // [num_groups] KV blocks to reserve in each cache group (touched lazily)
  int32_t num_groups;
  int32_t threads;  // worker threads, the calling thread included
};

// One step over S sequences packed into T tokens: prefill chunks and decodes mixed at will.
struct EsStep {
  int32_t num_tokens;             // T <= max_num_tokens
  int32_t num_seqs;               // S <= max_batch_size
  int32_t num_rows;               // R <= max_batch_size rows of logits wanted
  int32_t max_blocks;             // B, columns of a block table
  const int32_t* input_ids;       // [T]
  const int32_t* position_ids;    // [T] absolute positions
  const int32_t* query_start;     // [S+1] first token of each sequence in the step; query_start[S] == T
  const int32_t* context_length;  // [S] tokens in the cache once this step has written its own
  const int32_t* block_table;     // [num_groups, S, B]; -1 where a block behind the window was freed
  const int32_t* logits_rows;     // [R] token rows whose logits are wanted, ascending
};

// Sampling of the R rows of the last step. Per-row arrays have R elements. A null history is an empty one.
struct EsSample {
  int32_t num_rows;
  int32_t max_logprobs;               // columns of top_tokens and top_logprobs
  const float* temperature;           // 0 means greedy, else within [2^-126, 2^100]
  const float* top_p;                 // 1 means off
  const float* min_p;                 // 0 means off
  const int32_t* top_k;               // 0 means off
  const float* repetition_penalty;    // 1 means off; over prompt and output
  const float* presence_penalty;      // 0 means off; over output
  const float* frequency_penalty;     // 0 means off; over output
  const uint64_t* seed;               // the request's generator key
  const uint64_t* position;           // its counter: the index of the output token being drawn
  const int32_t* const* history;      // prompt then output token ids, or null when no penalty is set
  const int32_t* prompt_length;       // how many of them are prompt
  const int32_t* history_length;      // how many there are in all
  const int32_t* const* bias_tokens;  // logit bias, or null
  const float* const* bias_values;    // -inf bans a token
  const int32_t* bias_length;
  const int32_t* num_logprobs;  // -1: none; n: the sampled token's and the n best
  int32_t* token;               // out: the sampled token
  float* logprob;               // out: its log probability under the raw logits (NaN when not asked for)
  int32_t* rank;                // out: its rank under the raw logits, 1 is the best
  int32_t* top_tokens;          // out: [R, max_logprobs], -1 where unused
  float* top_logprobs;          // out: [R, max_logprobs]
};

uint32_t es_abi_version(void);
const char* es_last_error(void);
int es_open(const EsOpenArgs* args, EsEngine** engine);
void es_close(EsEngine* engine);
int es_step(EsEngine* engine, const EsStep* step);
// float32 [R, vocab_size] logits of the last step, valid until the next one.
const float* es_logits(EsEngine* engine);
int es_sample(EsEngine* engine, const EsSample* sample);

}  // extern "C"
