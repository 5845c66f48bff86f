// What this machine can do at best: reads from memory, and multiply-adds of each kind of instruction.
// Compiled like an engine, for one instruction set; a kind that it lacks reports 0.
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRounds = 5;  // the best of so many counts: others share the machine

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Seconds that `threads` threads need for work(thread) each, started together; the best of a few rounds.
template <class Work>
double best_time(int threads, Work work) {
  double best = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<int> ready{0};
    std::atomic<bool> go{false};
    std::vector<std::thread> pool;
    for (int t = 0; t < threads; ++t)
      pool.emplace_back([&, t] {
        ready.fetch_add(1);
        while (!go.load(std::memory_order_acquire)) {
        }
        work(t);
      });
    while (ready.load() < threads) {
    }
    const auto start = Clock::now();
    go.store(true, std::memory_order_release);
    for (auto& thread : pool) thread.join();
    best = std::min(best, seconds_since(start));
  }
  return best;
}

void read_all(const char* data, int64_t bytes) {
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (int64_t i = 0; i + 128 <= bytes; i += 128) {
    const auto* p = reinterpret_cast<const __m256i*>(data + i);
    a = _mm256_xor_si256(a, _mm256_loadu_si256(p));
    b = _mm256_xor_si256(b, _mm256_loadu_si256(p + 1));
    c = _mm256_xor_si256(c, _mm256_loadu_si256(p + 2));
    d = _mm256_xor_si256(d, _mm256_loadu_si256(p + 3));
  }
  asm volatile("" ::"x"(a), "x"(b), "x"(c), "x"(d));
}

// Independent accumulators hide the latency; the empty asm keeps the compiler from folding the loop away.
constexpr int kChains = 12;
constexpr int64_t kLoops = 3000000;

template <class V, class Step>
void spin(V zero, Step step) {
  V acc[kChains];
  for (auto& a : acc) a = zero;
  for (int64_t i = 0; i < kLoops; ++i)
    for (auto& a : acc) {
      a = step(a);
      asm volatile("" : "+x"(a));
    }
}

// Each probe returns operations per second, a multiply-add being two.
#ifdef __AVX512F__
template <class V, class Step>
void spin512(V zero, Step step) {
  V acc[kChains];
  for (auto& a : acc) a = zero;
  for (int64_t i = 0; i < kLoops; ++i)
    for (auto& a : acc) {
      a = step(a);
      asm volatile("" : "+v"(a));
    }
}

double fp32_fma(int threads) {
  const auto work = [](int) {
    const __m512 x = _mm512_set1_ps(1.0f), y = _mm512_set1_ps(0.5f);
    spin512(_mm512_setzero_ps(), [=](__m512 a) { return _mm512_fmadd_ps(a, x, y); });
  };
  return threads * double(kLoops) * kChains * 32 / best_time(threads, work);
}
#else
double fp32_fma(int threads) {
  const auto work = [](int) {
    const __m256 x = _mm256_set1_ps(1.0f), y = _mm256_set1_ps(0.5f);
    spin(_mm256_setzero_ps(), [=](__m256 a) { return _mm256_fmadd_ps(a, x, y); });
  };
  return threads * double(kLoops) * kChains * 16 / best_time(threads, work);
}
#endif

double int16_madd(int threads) {
  const auto work = [](int) {
    const __m256i y = _mm256_set1_epi16(2);
    spin(_mm256_setzero_si256(), [=](__m256i a) { return _mm256_add_epi32(a, _mm256_madd_epi16(a, y)); });
  };
  return threads * double(kLoops) * kChains * 32 / best_time(threads, work);
}

double int8_maddubs(int threads) {
  const auto work = [](int) {
    const __m256i y = _mm256_set1_epi8(2);
    spin(_mm256_setzero_si256(), [=](__m256i a) { return _mm256_add_epi16(a, _mm256_maddubs_epi16(a, y)); });
  };
  return threads * double(kLoops) * kChains * 64 / best_time(threads, work);
}

double int8_vnni(int threads) {
#ifdef __AVX512VNNI__
  const auto work = [](int) {
    const __m512i x = _mm512_set1_epi8(1), y = _mm512_set1_epi8(2);
    spin512(_mm512_setzero_si512(), [=](__m512i a) { return _mm512_dpbusd_epi32(a, x, y); });
  };
  return threads * double(kLoops) * kChains * 128 / best_time(threads, work);
#else
  (void)threads;
  return 0;
#endif
}

double bf16_dot(int threads) {
#ifdef __AVX512BF16__
  const auto work = [](int) {
    const __m512bh x = (__m512bh)_mm512_set1_epi16(0x3f80), y = x;
    spin512(_mm512_setzero_ps(), [=](__m512 a) { return _mm512_dpbf16_ps(a, x, y); });
  };
  return threads * double(kLoops) * kChains * 64 / best_time(threads, work);
#else
  (void)threads;
  return 0;
#endif
}

#ifdef __AMX_TILE__
struct alignas(64) TileConfig {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// `multiply` runs four tile products; each is 16 x 16 outputs over 64 bytes of K.
template <class Multiply>
double amx(int threads, int k, Multiply multiply) {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) return 0;
  constexpr int64_t loops = kLoops / 10;
  const auto work = [=](int) {
    TileConfig config;
    for (int i = 0; i < 8; ++i) config.row_bytes[i] = 64, config.rows[i] = 16;
    asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
    alignas(64) static const char zeros[1024] = {};
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, zeros, 64);
    _tile_loadd(5, zeros, 64);
    _tile_loadd(6, zeros, 64);
    _tile_loadd(7, zeros, 64);
    for (int64_t i = 0; i < loops; ++i) multiply();
    _tile_release();
  };
  return threads * double(loops) * 4 * 2 * 16 * 16 * k / best_time(threads, work);
}
#endif

double amx_int8(int threads) {
#ifdef __AMX_INT8__
  return amx(threads, 64, [] {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  });
#else
  (void)threads;
  return 0;
#endif
}

double amx_bf16(int threads) {
#ifdef __AMX_BF16__
  return amx(threads, 32, [] {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  });
#else
  (void)threads;
  return 0;
#endif
}

}  // namespace

#define ES_EXPORT extern "C" __attribute__((visibility("default")))

// Bytes per second that `threads` threads read from a buffer of `bytes`, each its own part; 0 if memory is short.
ES_EXPORT double es_read_bandwidth(int64_t bytes, int threads) {
  constexpr int64_t kHugePage = 2 << 20;
  const int64_t part = bytes / threads / kHugePage * kHugePage;
  char* data = part ? static_cast<char*>(std::aligned_alloc(kHugePage, part * threads)) : nullptr;
  if (!data) return 0;
  std::memset(data, 1, part * threads);
  const double time = best_time(threads, [=](int t) { read_all(data + t * part, part); });
  std::free(data);
  return double(part * threads) / time;
}

// Operations per second; `kind` counts in the order of Instruction in ceilings.py.
ES_EXPORT double es_peak(int kind, int threads) {
  using Probe = double (*)(int);
  constexpr Probe probes[] = {fp32_fma, int16_madd, int8_maddubs, int8_vnni, bf16_dot, amx_int8, amx_bf16};
  return kind < 0 || kind >= int(sizeof probes / sizeof *probes) ? 0 : probes[kind](threads);
}
