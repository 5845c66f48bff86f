// The C interface between a compiled engine and the runtime; runtime/executors/cpu_abi.py mirrors it with ctypes.
// Every function returns 0, or -1 with a message in es_last_error(). Pointers stay owned by the caller.
#pragma once
#include <cstdint>

extern "C" {

constexpr uint32_t kEsAbiVersion = 3;

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
  int32_t num_rows;               // R <= max_logits_rows rows of logits wanted
  int32_t max_blocks;             // B, columns of a block table
  const int32_t* input_ids;       // [T]
  const int32_t* position_ids;    // [T] absolute positions
  const int32_t* query_start;     // [S+1] first token of each sequence in the step; query_start[S] == T
  const int32_t* context_length;  // [S] tokens in the cache once this step has written its own
  const int32_t* block_table;     // [num_groups, S, B]; -1 where a block behind the window was freed
  const int32_t* logits_rows;     // [R] token rows whose logits are wanted, ascending
  const int32_t* state_slots;     // [S] where each sequence's states lie, in [0, max_batch_size), all different
};

// Runs tasks on an engine's threads: task(context, index, worker) once for each index in [0, tasks), worker in
// [0, threads); returns when all have returned. One run at a time, and not within a step.
struct EsParallel {
  void* pool;
  int32_t threads;
  void (*run)(void* pool, int64_t tasks, void (*task)(void* context, int64_t index, int32_t worker), void* context);
};

uint32_t es_abi_version(void);
const char* es_last_error(void);
int es_open(const EsOpenArgs* args, EsEngine** engine);
void es_close(EsEngine* engine);
int es_step(EsEngine* engine, const EsStep* step);
// float32 [R, vocab_size] logits of the last step, valid until the next one.
const float* es_logits(EsEngine* engine);
void es_parallel(EsEngine* engine, EsParallel* parallel);

}  // extern "C"
