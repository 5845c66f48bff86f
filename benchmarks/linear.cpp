// Measures linear kernels beside this machine's ceilings, in one run: one line of key=value pairs a measurement.
// Weights lie in 4 KB pages, as a mapped file's do, and are larger than the caches.
#include "linear/cpu/linear.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "gated_mlp/cpu/gated_mlp.h"

using namespace es;

// One thread is timed by its own clock, which stands still while another process has the core.
static bool g_alone, g_decode;
static double now() {
  timespec t;
  clock_gettime(g_alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

// Best time of one call: others use this machine too.
template <class F>
static double best_time(F&& f, double budget) {
  f();
  double best = 1e9;
  const double end = now() + budget;
  for (int i = 0; i < 3 || now() < end; i++) {
    const double start = now();
    f();
    best = std::min(best, now() - start);
  }
  return best;
}

static uint8_t* map_pages(int64_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(p, bytes, MADV_NOHUGEPAGE);
  return static_cast<uint8_t*>(p);
}

#define ES_KEEP(a)                                                                                             \
  asm volatile("" ::"x"((a)[0]), "x"((a)[1]), "x"((a)[2]), "x"((a)[3]), "x"((a)[4]), "x"((a)[5]), "x"((a)[6]), \
               "x"((a)[7]), "x"((a)[8]), "x"((a)[9]))

constexpr int64_t kLoops = 4000000;
static void spin_fma() {
  __m256 a[10] = {}, x = _mm256_set1_ps(0.5f), y = _mm256_set1_ps(2);
  for (int64_t i = 0; i < kLoops; i++) {
#pragma GCC unroll 10
    for (int j = 0; j < 10; j++) a[j] = _mm256_fmadd_ps(a[j], x, y);
    ES_KEEP(a);
  }
}
template <class F>
static void spin_integer(F&& step) {
  __m256i a[10] = {}, x = _mm256_set1_epi32(0x01010101);
  for (int64_t i = 0; i < kLoops; i++) {
#pragma GCC unroll 10
    for (int j = 0; j < 10; j++) {
      asm volatile("" : "+x"(x));
      a[j] = step(a[j], x);
    }
    ES_KEEP(a);
  }
}
static void spin_madd() {
  const __m256i y = _mm256_set1_epi16(2);
  spin_integer([&](__m256i s, __m256i x) { return _mm256_add_epi32(s, _mm256_madd_epi16(x, y)); });
}
static void spin_maddubs() {
  const __m256i y = _mm256_set1_epi8(2);
  spin_integer([&](__m256i s, __m256i x) { return _mm256_add_epi16(s, _mm256_maddubs_epi16(x, y)); });
}

static void read_all(const uint8_t* p, int64_t bytes) {
  __m256i a[4] = {};
  for (int64_t i = 0; i < bytes; i += 128)
    for (int j = 0; j < 4; j++)
      a[j] = _mm256_xor_si256(a[j], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + i + 32 * j)));
  asm volatile("" ::"x"(a[0]), "x"(a[1]), "x"(a[2]), "x"(a[3]));
}

static double g_read, g_fma, g_madd, g_maddubs;  // per second over all threads

static void measure_ceilings(ThreadPool& pool) {
  const int threads = pool.threads();
  const int64_t bytes = 384 << 20, piece = 1 << 20;
  uint8_t* p = map_pages(bytes);
  std::memset(p, 1, bytes);
  g_read =
      bytes / best_time([&] { pool.run(bytes / piece, [&](int64_t i, int) { read_all(p + i * piece, piece); }); }, 0.5);
  munmap(p, bytes);
  const double calls = threads * kLoops * 10.0;
  g_fma = calls * 16 / best_time([&] { pool.run(threads, [](int64_t, int) { spin_fma(); }); }, 0.3);
  g_madd = calls * 32 / best_time([&] { pool.run(threads, [](int64_t, int) { spin_madd(); }); }, 0.3);
  g_maddubs = calls * 64 / best_time([&] { pool.run(threads, [](int64_t, int) { spin_maddubs(); }); }, 0.3);
  std::printf("ceilings threads=%d read=%.2f fma=%.1f madd=%.1f maddubs=%.1f\n", threads, g_read / 1e9, g_fma / 1e9,
              g_madd / 1e9, g_maddubs / 1e9);
}

template <class W>
static double ceiling() {
  if constexpr (std::is_same_v<W, Fp32Weight> || std::is_same_v<W, Bf16Weight> || kIsFp8<W>) {
    return g_fma;
  } else {
    return W::kBits == 8 ? g_madd : g_maddubs;
  }
}

template <class W>
static void fill(uint8_t* weight, int64_t bytes) {
  if constexpr (std::is_same_v<W, Fp32Weight>) {
    std::fill_n(reinterpret_cast<float*>(weight), bytes / 4, 0.01f);
  } else if constexpr (std::is_same_v<W, Bf16Weight>) {
    std::memset(weight, 0x3c, bytes);
  } else {
    std::memset(weight, 0x2b, bytes);
  }
}

// Calls a [N, K] layer over enough copies of its weight to leave the caches, then prints shares of the ceilings.
template <class W, int N, int K, bool Gated>
static void measure(ThreadPool& pool, const char* type, std::initializer_list<int64_t> batches) {
  const int64_t bytes = weight_bytes<W>(N, K) * (Gated ? 2 : 1);
  const int64_t copies = std::max<int64_t>(1, (192 << 20) / bytes);
  uint8_t* weights = map_pages(copies * bytes);
  fill<W>(weights, copies * bytes);
  const int64_t most = std::max(batches);
  float* x = static_cast<float*>(std::aligned_alloc(64, round_up(most * K * 4, 64)));
  float* y = static_cast<float*>(std::aligned_alloc(64, round_up(most * N * 4, 64)));
  uint8_t* scratch = static_cast<uint8_t*>(std::aligned_alloc(64, linear_scratch_bytes<W, N, K>(most, 2) + 64));
  for (int64_t i = 0; i < most * K; i++) x[i] = static_cast<float>(i * 31 % 255 - 127);
  for (const int64_t m : batches) {
    const int64_t used = m > 32 ? 1 : copies;
    const auto pass = [&] {
      for (int64_t c = 0; c < used; c++) {
        const uint8_t* w = weights + c * bytes;
        if constexpr (Gated) {
          gated_mlp<W, N, K, Silu>(pool, w, {x, K}, nullptr, nullptr, {y, N}, m, scratch);
        } else {
          linear<W, N, K, Identity>(pool, w, {x, K}, nullptr, {nullptr, 0}, {y, N}, m, scratch);
        }
      }
    };
    const double seconds = best_time(pass, 0.25) / used;
    const double ops = 2.0 * m * N * K * (Gated ? 2 : 1) / seconds;
    std::printf("%s type=%s n=%d k=%d m=%lld us=%.1f gbs=%.2f read_share=%.3f gops=%.1f peak_share=%.3f\n",
                Gated ? "gated_mlp" : "linear", type, N, K, static_cast<long long>(m), seconds * 1e6,
                bytes / seconds / 1e9, bytes / seconds / g_read, ops / 1e9, ops / ceiling<W>());
    std::fflush(stdout);
  }
  munmap(weights, copies * bytes);
  std::free(x), std::free(y), std::free(scratch);
}

// A token through the layers of Llama 3.2 1B.
template <class W>
static void measure_decode(ThreadPool& pool, const char* type) {
  measure<W, 3072, 2048, false>(pool, type, {1});
  measure<W, 2048, 2048, false>(pool, type, {1});
  measure<W, 8192, 2048, true>(pool, type, {1});
  measure<W, 2048, 8192, false>(pool, type, {1});
  measure<W, 128256, 2048, false>(pool, type, {1});
}

template <class W>
static void measure_type(ThreadPool& pool, const char* type) {
  if (g_decode) return measure_decode<W>(pool, type);
  measure<W, 8192, 2048, false>(pool, type, {1, 2, 4, 8, 16, 512});
  measure<W, 2048, 8192, false>(pool, type, {1, 4, 512});
  measure<W, 576, 576, false>(pool, type, {1, 4, 16, 512});
  measure<W, 1536, 576, true>(pool, type, {1, 4, 16, 512});
}

int main(int argc, char** argv) {
  ThreadPool pool(argc > 1 ? std::atoi(argv[1]) : 2);
  g_alone = pool.threads() == 1;
  const char* only = argc > 2 ? argv[2] : "";
  g_decode = argc > 3 && !std::strcmp(argv[3], "decode");
  measure_ceilings(pool);
  const auto wanted = [&](const char* name) { return std::strncmp(name, only, std::strlen(only)) == 0; };
  if (wanted("fp32")) measure_type<Fp32Weight>(pool, "fp32");
  if (wanted("bf16")) measure_type<Bf16Weight>(pool, "bf16");
  if (wanted("fp8")) measure_type<Fp8Weight<0>>(pool, "fp8");
  if (wanted("fp8-g128")) measure_type<Fp8Weight<128, Inputs::kDynamic>>(pool, "fp8-g128");
  if (wanted("int8")) measure_type<Int8Weight<0>>(pool, "int8");
  if (wanted("int8-g64")) measure_type<Int8Weight<64>>(pool, "int8-g64");
  if (wanted("int4-g32")) measure_type<Int4Weight<32, true>>(pool, "int4-g32");
  if (wanted("int4-g64")) measure_type<Int4Weight<64, true>>(pool, "int4-g64");
  if (wanted("int4-g128")) measure_type<Int4Weight<128, true>>(pool, "int4-g128");
  if (wanted("symmetric-int4-g64")) measure_type<Int4Weight<64>>(pool, "symmetric-int4-g64");
}
