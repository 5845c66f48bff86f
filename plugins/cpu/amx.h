// AMX tiles, or their meaning in plain C++ where a test emulates them.
//
// The instructions are written as asm that clobbers memory: GCC 12's intrinsics do not say that tiles read and write
// memory, and stores to a buffer that a tile is loaded from are then moved or dropped.
#pragma once
#include <sys/syscall.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "cpu/avx512.h"

namespace es::amx {

// What LDTILECFG reads: palette 1, then the size of each of eight tiles.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int count, int bytes) {
    row_bytes[tile] = static_cast<uint16_t>(count ? bytes : 0);
    rows[tile] = static_cast<uint8_t>(count);
  }
};

#if defined(ES_EMULATE_AMX)

struct EmulatedTiles {
  TileConfig config;
  alignas(64) uint8_t data[8][16][64];
};
inline thread_local EmulatedTiles emulated;

inline bool enable() { return true; }
inline void configure(const TileConfig& config) { emulated = {config, {}}; }
inline void release() { emulated.config = {}; }
template <int T>
void zero() {
  std::memset(emulated.data[T], 0, sizeof(emulated.data[T]));
}
template <int T>
void load(const void* p, int64_t stride) {
  for (int r = 0; r < emulated.config.rows[T]; r++)
    std::memcpy(emulated.data[T][r], static_cast<const uint8_t*>(p) + r * stride, emulated.config.row_bytes[T]);
}
template <int T>
void store(void* p, int64_t stride) {
  for (int r = 0; r < emulated.config.rows[T]; r++)
    std::memcpy(static_cast<uint8_t*>(p) + r * stride, emulated.data[T][r], emulated.config.row_bytes[T]);
}
// C += A B, a row of C at a time: A's row holds 16 groups of values, each group meets a row of B.
template <int C, int A, int B, class Step, class Sum>
void emulate_product(Step&& step, Sum) {
  for (int r = 0; r < emulated.config.rows[C]; r++) {
    Sum sum;
    std::memcpy(&sum, emulated.data[C][r], 64);
    for (int k = 0; k < emulated.config.rows[B]; k++) {
      int32_t group;
      std::memcpy(&group, emulated.data[A][r] + 4 * k, 4);
      sum = step(sum, v512::load_words(emulated.data[B][k]), v512::broadcast_word(group));
    }
    std::memcpy(emulated.data[C][r], &sum, 64);
  }
}
template <int C, int A, int B>
void dot_bytes() {
  emulate_product<C, A, B>(v512::dot_bytes, v512::Words{});
}
template <int C, int A, int B>
void dot_bf16() {
  emulate_product<C, A, B>(v512::dot_bf16, v512::Floats{});
}

#else

// Asks Linux for the tiles, once a process; false where it refuses.
inline bool enable() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  static const bool granted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return granted;
}
ES_INLINE void configure(const TileConfig& config) { asm volatile("ldtilecfg %0" ::"m"(config) : "memory"); }
ES_INLINE void release() { asm volatile("tilerelease" ::: "memory"); }
template <int T>
ES_INLINE void zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(T) : "memory");
}
template <int T>
ES_INLINE void load(const void* p, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(T) : "memory");
}
template <int T>
ES_INLINE void store(void* p, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride), "i"(T) : "memory");
}
// C += A B: A has signed bytes, B unsigned ones.
template <int C, int A, int B>
ES_INLINE void dot_bytes() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B) : "memory");
}
template <int C, int A, int B>
ES_INLINE void dot_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B) : "memory");
}

#endif

}  // namespace es::amx
