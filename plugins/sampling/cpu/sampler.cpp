// The sampler's library: model-independent, compiled once for each instruction set.
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>

#pragma GCC visibility push(default)
#include "sampling/cpu/abi.h"
#pragma GCC visibility pop
#include "cpu/thread_pool.h"
#include "sampling/cpu/sampling.h"

namespace {

thread_local char last_error[512];

int fail(const char* message) {
  std::snprintf(last_error, sizeof(last_error), "%s", message);
  return -1;
}

}  // namespace

struct EsSampler {
  EsSampler(const EsParallel& on, int64_t vocab)
      : parallel(on), vocab(vocab), scratch(new float[es::sample_scratch_floats(on.threads, vocab)]) {}

  EsParallel parallel;
  int64_t vocab;
  std::unique_ptr<float[]> scratch;  // not touched before it is needed
  std::unique_ptr<es::ThreadPool> own;
};

uint32_t es_sample_size(void) { return sizeof(EsSample); }

const char* es_sampler_error(void) { return last_error; }

int es_sampler_open(const EsParallel* parallel, int64_t vocab, EsSampler** sampler) {
  try {
    *sampler = new EsSampler(*parallel, vocab);
    return 0;
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}

int es_sampler_open_alone(int32_t threads, int64_t vocab, EsSampler** sampler) {
  try {
    auto own = std::make_unique<es::ThreadPool>(threads);
    const auto run = [](void* pool, int64_t tasks, void (*task)(void*, int64_t, int32_t), void* context) {
      static_cast<es::ThreadPool*>(pool)->run(tasks, [&](int64_t index, int worker) { task(context, index, worker); });
    };
    auto made = std::make_unique<EsSampler>(EsParallel{own.get(), own->threads(), run}, vocab);
    made->own = std::move(own);
    *sampler = made.release();
    return 0;
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}

void es_sampler_close(EsSampler* sampler) { delete sampler; }

int es_sample(EsSampler* sampler, const float* logits, int32_t num_rows, const EsSample* sample) {
  EsSample args{};
  std::memcpy(&args, sample, std::min<size_t>(sample->size, sizeof(args)));
  std::string error;
  if (es::sample(sampler->parallel, logits, num_rows, sampler->vocab, args, sampler->scratch.get(), &error) == 0)
    return 0;
  return fail(error.c_str());
}
