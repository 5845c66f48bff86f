// A stand-in for a compiled engine: its "network" hashes the whole visible context, read back through the paged block
// tables, so that any wrong block, position, window or neighbour changes every later token. It speaks the real ABI.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "cpu/abi.h"

#ifndef TOY_SALT
#define TOY_SALT 0
#endif

namespace {

constexpr int kVocab = TOY_VOCAB, kBlock = TOY_BLOCK, kWindow = TOY_WINDOW;
thread_local std::string error;

int fail(const std::string& message) {
  error = message;
  return -1;
}

uint64_t mix(uint64_t h, uint64_t value) {
  h ^= value + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdull;
  h ^= h >> 33;
  h *= 0xc4ceb9fe1a85ec53ull;
  return h ^ (h >> 33);
}

float uniform(uint64_t h) { return (float((h >> 40) & 0xffffff) + 0.5f) / float(1 << 24); }

struct Cell {
  int32_t token = -7, position = -7;
};

}  // namespace

struct EsEngine {
  std::vector<Cell> cache[2];
  std::vector<float> logits;
  uint64_t weights_hash = 0;
};

extern "C" {

uint32_t es_abi_version(void) { return kEsAbiVersion; }
const char* es_last_error(void) { return error.c_str(); }

int es_open(const EsOpenArgs* args, EsEngine** engine) {
  if (args->num_groups != 2) return fail("toy: expected 2 cache groups");
  if (reinterpret_cast<uintptr_t>(args->weights) % 64) return fail("toy: weights are not aligned");
  *engine = new EsEngine;
  for (int g = 0; g < 2; ++g) (*engine)->cache[g].resize(size_t(args->num_blocks[g]) * kBlock);
  for (uint64_t i = 0; i < args->weights_bytes; ++i)
    (*engine)->weights_hash = mix((*engine)->weights_hash, args->weights[i]);
  return 0;
}

void es_close(EsEngine* engine) { delete engine; }

int es_step(EsEngine* engine, const EsStep* step) {
  const int S = step->num_seqs, B = step->max_blocks;
  if (step->query_start[S] != step->num_tokens) return fail("toy: query_start does not end at num_tokens");
  auto block = [&](int g, int s, int p) { return step->block_table[(g * S + s) * B + p / kBlock]; };
  engine->logits.assign(size_t(step->num_rows) * kVocab, 0);
  for (int s = 0; s < S; ++s) {  // write all, then read
    for (int t = step->query_start[s]; t < step->query_start[s + 1]; ++t) {
      const int p = step->position_ids[t];
      if (p != step->context_length[s] - (step->query_start[s + 1] - t)) return fail("toy: wrong position");
      if (step->input_ids[t] < 0 || step->input_ids[t] >= kVocab) return fail("toy: token out of range");
      for (int g = 0; g < 2; ++g) {
        const int b = block(g, s, p);
        if (b < 0 || size_t(b + 1) * kBlock > engine->cache[g].size()) return fail("toy: no block to write to");
        engine->cache[g][size_t(b) * kBlock + p % kBlock] = {step->input_ids[t], p};
      }
    }
  }
  for (int r = 0; r < step->num_rows; ++r) {
    const int t = step->logits_rows[r];
    if (t < 0 || t >= step->num_tokens || (r && t <= step->logits_rows[r - 1])) return fail("toy: bad logits row");
    const int s = int(std::upper_bound(step->query_start, step->query_start + S + 1, t) - step->query_start) - 1;
    const int p = step->position_ids[t];
    uint64_t h = mix(engine->weights_hash, TOY_SALT);
    for (int g = 0; g < 2; ++g) {
      for (int j = g ? std::max(0, p - kWindow + 1) : 0; j <= p; ++j) {
        const int b = block(g, s, j);
        if (b < 0) return fail("toy: a visible block was freed");
        const Cell cell = engine->cache[g][size_t(b) * kBlock + j % kBlock];
        if (cell.position != j) return fail("toy: a block holds another position");
        h = mix(h, uint64_t(cell.token));
      }
    }
    for (int v = 0; v < kVocab; ++v) engine->logits[size_t(r) * kVocab + v] = uniform(mix(h, v)) * 8 - 4;
  }
  return 0;
}

const float* es_logits(EsEngine* engine) { return engine->logits.data(); }

void es_parallel(EsEngine*, EsParallel* parallel) {
  *parallel = {nullptr, 1, [](void*, int64_t tasks, void (*task)(void*, int64_t, int32_t), void* context) {
                 for (int64_t i = 0; i < tasks; ++i) task(context, i, 0);
               }};
}

}  // extern "C"
