// Measures paged attention beside this machine's ceilings, in one run. Caches are larger than the processor's.
//
//   g++ -std=c++17 -O3 -march=native -ffp-contract=off -I plugins benchmarks/attention.cpp -o /tmp/attention -pthread
//   /tmp/attention [threads]
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <random>
#include <vector>

#include "attention/cpu/paged_attention.h"

using namespace es;

using Int8Cache = PerToken<Int8>;
using Fp8Cache = PerToken<Fp8>;

// One thread is timed by its own clock, which stands still while another process has the core.
static int g_threads = 1;
static double now() {
  timespec t;
  clock_gettime(g_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

// Best of several calls: others may use this machine too.
template <class F>
static double best_time(F&& f) {
  f();
  double best = 1e9;
  const double end = now() + 0.5;
  for (int i = 0; i < 3 || now() < end; ++i) {
    const double start = now();
    f();
    best = std::min(best, now() - start);
  }
  return best;
}

// Multiplications and additions a second of vectors in registers.
static double peak_flops(ThreadPool& pool) {
  constexpr int kSums = 12, kLoops = 1000000;
  const double seconds = best_time([&] {
    pool.run(pool.threads(), [&](int64_t, int) {
      VF sum[kSums] = {};
      const VF x = VF::broadcast(0.5f), y = VF::broadcast(0.25f);
      for (int i = 0; i < kLoops; ++i)
        unroll<kSums>([&](auto s) ES_ALWAYS_INLINE {
          sum[s] = fma(sum[s], x, y);
          asm volatile("" : "+x"(sum[s].v));
        });
    });
  });
  return 2.0 * kSums * VF::kLanes * kLoops * pool.threads() / seconds;
}

// Bytes a second when memory is read in order.
static double read_bandwidth(ThreadPool& pool) {
  std::vector<float> memory(64 << 20, 1.0f);
  const int64_t piece = memory.size() / pool.threads();
  std::atomic<float> sink{0};
  const double seconds = best_time([&] {
    pool.run(pool.threads(), [&](int64_t task, int) {
      VF sum[4] = {};
      for (const float *p = &memory[task * piece], *end = p + piece; p < end; p += 4 * VF::kLanes)
        for (int i = 0; i < 4; ++i) sum[i] = sum[i] + VF::load(p + i * VF::kLanes);
      sink = reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3]));
    });
  });
  return piece * pool.threads() * sizeof(float) / seconds;
}

// `sequences` each bring `tokens` tokens to a context that is `context` long then, in `layers` layers.
template <class E, int H, int Hk, int D>
static void measure(ThreadPool& pool, const char* name, int sequences, int context, int tokens, int layers,
                    double flops, double bandwidth) {
  constexpr int kBlock = 32;
  using Kernel = PagedAttention<E, H, Hk, D, D, kBlock>;
  const int blocks = (context + kBlock - 1) / kBlock * sequences, T = tokens * sequences;
  const int64_t stride = Kernel::block_bytes * layers;
  std::vector<uint8_t> cache(blocks * stride);
  std::vector<float> q(T * H * D), k(T * Hk * D), v(T * Hk * D), out(T * H * D);
  std::mt19937 generator(0);
  std::normal_distribution<float> normal;
  for (auto* x : {&q, &k, &v})
    for (float& value : *x) value = normal(generator);
  std::vector<int32_t> start(sequences + 1), length(sequences, context), table(blocks);
  for (int s = 0; s <= sequences; ++s) start[s] = s * tokens;
  std::iota(table.begin(), table.end(), 0);
  const AttentionStep step{T, sequences, blocks / sequences, start.data(), length.data(), table.data()};
  std::vector<float> scratch(Kernel::scratch_floats(pool.threads(), T));
  const AttentionOptions options{0.125f, 0.0f, 0, 0, nullptr, nullptr};
  const double seconds = best_time([&] {
    for (int layer = 0; layer < layers; ++layer) {
      Kernel::run(pool, {q.data(), H * D, D}, {k.data(), Hk * D, D}, {v.data(), Hk * D, D}, {out.data(), H * D, D},
                  {cache.data() + layer * Kernel::block_bytes, stride}, step, options, scratch.data());
    }
  });
  double pairs = 0;  // of a query and a key it sees
  for (int i = 0; i < tokens; ++i) pairs += context - i;
  const double work = 4.0 * D * H * pairs * sequences * layers / seconds;
  const double bytes = 1.0 * Kernel::block_bytes / kBlock * context * sequences * layers / seconds;
  std::printf("%-44s %9.3f ms  %6.1f GFLOP/s (%2.0f%%)  %5.1f GB/s (%2.0f%%)\n", name, seconds * 1e3, work * 1e-9,
              100 * work / flops, bytes * 1e-9, 100 * bytes / bandwidth);
}

int main(int count, char** arguments) {
  g_threads = count > 1 ? std::atoi(arguments[1]) : 1;
  ThreadPool pool(g_threads);
  const double flops = peak_flops(pool), bandwidth = read_bandwidth(pool);
  std::printf("%d threads, fp32 FMA %.1f GFLOP/s, reads %.1f GB/s; shares of these in parentheses\n", g_threads,
              flops * 1e-9, bandwidth * 1e-9);
  measure<Bf16, 9, 3, 64>(pool, "prefill 1024, 9/3 heads of 64, bf16", 1, 1024, 1024, 1, flops, bandwidth);
  measure<Fp32, 9, 3, 64>(pool, "prefill 1024, 9/3 heads of 64, fp32", 1, 1024, 1024, 1, flops, bandwidth);
  measure<Int8Cache, 9, 3, 64>(pool, "prefill 1024, 9/3 heads of 64, int8", 1, 1024, 1024, 1, flops, bandwidth);
  measure<Fp8Cache, 9, 3, 64>(pool, "prefill 1024, 9/3 heads of 64, fp8", 1, 1024, 1024, 1, flops, bandwidth);
  measure<Bf16, 32, 8, 64>(pool, "prefill 1024, 32/8 heads of 64, bf16", 1, 1024, 1024, 1, flops, bandwidth);
  measure<Bf16, 9, 3, 64>(pool, "decode 1 x 1024, 9/3 heads of 64, bf16", 1, 1024, 1, 120, flops, bandwidth);
  measure<Bf16, 9, 3, 64>(pool, "decode 16 x 256, 9/3 heads of 64, bf16", 16, 256, 1, 30, flops, bandwidth);
  measure<Fp32, 32, 8, 64>(pool, "decode 4 x 2048, 32/8 heads of 64, fp32", 4, 2048, 1, 4, flops, bandwidth);
  measure<Bf16, 32, 8, 64>(pool, "decode 4 x 2048, 32/8 heads of 64, bf16", 4, 2048, 1, 8, flops, bandwidth);
  measure<Int8Cache, 32, 8, 64>(pool, "decode 4 x 2048, 32/8 heads of 64, int8", 4, 2048, 1, 16, flops, bandwidth);
  measure<Fp8Cache, 32, 8, 64>(pool, "decode 4 x 2048, 32/8 heads of 64, fp8", 4, 2048, 1, 16, flops, bandwidth);
  measure<Bf16, 8, 8, 128>(pool, "decode 4 x 2048, 8/8 heads of 128, bf16", 4, 2048, 1, 4, flops, bandwidth);
  measure<Int8Cache, 8, 8, 128>(pool, "decode 4 x 2048, 8/8 heads of 128, int8", 4, 2048, 1, 8, flops, bandwidth);
  measure<Fp8Cache, 8, 8, 128>(pool, "decode 4 x 2048, 8/8 heads of 128, fp8", 4, 2048, 1, 8, flops, bandwidth);
}
