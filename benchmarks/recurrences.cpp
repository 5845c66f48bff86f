// Measures the recurrent kernels on prompts of 1024 to 8192 tokens, which should take as long a token.
//
//   g++ -std=c++17 -O3 -march=native -ffp-contract=off -I plugins benchmarks/recurrences.cpp -o /tmp/recurrences
//   -pthread /tmp/recurrences [threads]
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <vector>

#include "linear_attention/cpu/linear_attention.h"
#include "linear_recurrence/cpu/linear_recurrence.h"
#include "selective_scan/cpu/selective_scan.h"
#include "wkv/cpu/wkv.h"

using namespace es;

// One thread is timed by its own clock, which stands still while another process has the core.
static int g_threads = 1;
static double now() {
  timespec t;
  clock_gettime(g_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

// Runs `f(pool, states, step)` on prompts of several lengths, the best of several calls each.
template <class F>
static void measure(const char* name, double flops_a_token, int64_t state_floats, F&& f) {
  ThreadPool pool(g_threads);
  for (int32_t tokens = 1024; tokens <= 8192; tokens *= 2) {
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      std::vector<float> state(state_floats);
      const int32_t query_start[] = {0, tokens}, slot = 0;
      const double start = now();
      f(pool, StateLayer{state.data(), state_floats}, StateStep{1, query_start, &slot});
      best = std::min(best, now() - start);
    }
    std::printf("%-34s %6d tokens %9.2f us a token %7.1f GFLOP/s\n", name, tokens, best / tokens * 1e6,
                flops_a_token * tokens / best * 1e-9);
  }
}

static std::vector<float> numbers(int64_t count, float low, float high) {
  std::mt19937 generator(1);
  std::uniform_real_distribution<float> draw(low, high);
  std::vector<float> x(count);
  for (float& each : x) each = draw(generator);
  return x;
}

template <int H, int Hk, Decay D, bool Delta>
static void measure_attention(const char* name, const std::vector<float>& x, const std::vector<float>& decay,
                              std::vector<float>& y) {
  constexpr int kSize = 128, kDecays = D == Decay::kChannel ? kSize : 1;
  const Heads keys{x.data(), Hk * kSize, kSize}, values{x.data(), H * kSize, kSize};
  const LinearAttentionInputs in{
      keys, keys, values, {decay.data(), H * kDecays, kDecays}, {x.data(), H, 1}, {y.data(), H * kSize, kSize},
      0.1f, 1e-6f};
  measure(name, (Delta ? 7.0 : 5.0) * H * kSize * kSize, int64_t{H} * kSize * kSize,
          [&](ThreadPool& pool, StateLayer states, const StateStep& step) {
            LinearAttention<H, Hk, kSize, kSize, D, Delta, Delta>::run(pool, in, states, step);
          });
}

int main(int argc, char** argv) {
  g_threads = argc > 1 ? std::atoi(argv[1]) : 1;
  constexpr int64_t kMost = 8192 * 2048;
  const auto x = numbers(kMost, -1, 1), decay = numbers(kMost, -2, 0), steps = numbers(kMost, 0, 1);
  std::vector<float> y(kMost);
  measure_attention<8, 4, Decay::kHead, true>("gated delta rule, 8 x 128 x 128", x, decay, y);
  measure_attention<8, 8, Decay::kChannel, true>("delta rule by channel, 8 x 128 x 128", x, decay, y);
  measure_attention<8, 8, Decay::kHead, false>("decaying attention, 8 x 128 x 128", x, decay, y);
  constexpr int kChannels = 2048, kSize = 16;
  const Rows rows{x.data(), kChannels}, positive{steps.data(), kChannels}, small{x.data(), kSize};
  const MutRows out{y.data(), kChannels};
  measure("selective scan, 2048 x 16", 6.0 * kChannels * kSize, kChannels * kSize,
          [&](ThreadPool& pool, StateLayer states, const StateStep& step) {
            SelectiveScan<kChannels, kSize>::run(pool, {rows, positive, decay.data(), small, small, out}, states, step);
          });
  measure("linear recurrence, 2048", 2.0 * kChannels, kChannels,
          [&](ThreadPool& pool, StateLayer states, const StateStep& step) {
            LinearRecurrence<kChannels, false>::run(pool, {rows, positive, out}, states, step);
          });
  measure("WKV, 2048", 14.0 * kChannels, 3 * kChannels,
          [&](ThreadPool& pool, StateLayer states, const StateStep& step) {
            Wkv<kChannels>::run(pool, {decay.data(), x.data(), rows, rows, out}, states, step);
          });
}
