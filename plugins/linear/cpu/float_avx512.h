// fp32, bf16 and fp8 panels on AVX-512: as on AVX2, one accumulator an output, k ascending; bf16 meets rows rounded to
// bf16 and adds two products a step, and so does fp8.
#pragma once
#include "cpu/avx512.h"
#include "linear/cpu/prepare.h"

namespace es::avx512 {

constexpr int64_t kBlockK = 128;  // steps of a panel, 16 KB, that tiles of rows share in the first-level cache

// One step: an fp32 element, or a pair of bf16 or fp8, of R rows times 32 outputs whose halves lie `half` bytes apart.
struct Fp32Step {
  static constexpr int64_t kBytes = 64;  // of 16 outputs
  ES_INLINE static v512::Floats add(v512::Floats sum, const uint8_t* w, const uint8_t* x) {
    float value;
    std::memcpy(&value, x, 4);
    return v512::fma(v512::broadcast(value), v512::load(reinterpret_cast<const float*>(w)), sum);
  }
};
struct Bf16Step {
  static constexpr int64_t kBytes = 64;
  ES_INLINE static v512::Floats add(v512::Floats sum, const uint8_t* w, const uint8_t* x) {
    int32_t pair;
    std::memcpy(&pair, x, 4);
    return v512::dot_bf16(sum, v512::load_words(w), v512::broadcast_word(pair));
  }
};
struct Fp8Step {
  static constexpr int64_t kBytes = 32;
  ES_INLINE static v512::Floats add(v512::Floats sum, const uint8_t* w, const uint8_t* x) {
    int32_t pair;
    std::memcpy(&pair, x, 4);
    return v512::dot_bf16(sum, v512::load_fp8_pairs(w), v512::broadcast_word(pair));
  }
};

// acc[R][32] += x[R][steps] * w. `x` and `stride` are bytes, 4 of them a step.
template <class Step, int R>
ES_NOINLINE void float_tile(const uint8_t* w, int64_t half, const uint8_t* x, int64_t stride, int64_t steps,
                            float* acc) {
  v512::Floats sum[R][2];
  for (int r = 0; r < R; r++)
    for (int h = 0; h < 2; h++) sum[r][h] = v512::load(acc + r * kPanel + h * kHalf);
  for (int64_t i = 0; i < steps; i++) {
    const uint8_t *w0 = w + Step::kBytes * i, *w1 = w0 + half;
    _mm_prefetch(reinterpret_cast<const char*>(w0) + 2048, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(w1) + 2048, _MM_HINT_T0);
    ES_UNROLL for (int r = 0; r < R; r++) {
      sum[r][0] = Step::add(sum[r][0], w0, x + r * stride + 4 * i);
      sum[r][1] = Step::add(sum[r][1], w1, x + r * stride + 4 * i);
    }
  }
  for (int r = 0; r < R; r++)
    for (int h = 0; h < 2; h++) v512::store(acc + r * kPanel + h * kHalf, sum[r][h]);
}

// acc[rows][32] = x * panel of `steps` steps.
template <class Step>
ES_NOINLINE void float_panel(const uint8_t* panel, int64_t steps, const uint8_t* x, int64_t stride, int64_t rows,
                             float* acc) {
  std::fill(acc, acc + rows * kPanel, 0.0f);
  const int64_t block = rows <= 6 ? steps : kBlockK;
  for (int64_t first = 0; first < steps; first += block) {
    const int64_t n = std::min(block, steps - first);
    for_row_tiles<6>(rows, [&](auto tile, int64_t r) {
      float_tile<Step, tile>(panel + 64 * first, 64 * steps, x + r * stride + 4 * first, stride, n, acc + r * kPanel);
    });
  }
}

// Two runs of 16-byte rows of E4M3, `half` bytes apart, to 64-byte steps of bf16: first all of one half.
ES_INLINE void unpack_fp8(const uint8_t* w, int64_t half, int64_t steps, uint8_t* out) {
  for (int h = 0; h < 2; h++)
    for (int64_t i = 0; i < steps; i++) {
      const uint8_t* from = w + h * half + 32 * i;
      _mm_prefetch(reinterpret_cast<const char*>(from) + 2048, _MM_HINT_T0);
      v512::store_words(out + 64 * (h * steps + i), v512::load_fp8_pairs(from));
    }
}

struct Fp8Sums {
  template <class W>
  static void add(const uint8_t* panel, int64_t k, int64_t first, int64_t count, const Prepared<W>& x, int64_t row,
                  int64_t rows, float* sums) {
    const uint8_t *weights = panel + first * kHalf, *from = x.row(row, first);
    const int64_t half = W::half_bytes(k), steps = ceil_div(count, 2);
    std::fill(sums, sums + rows * kPanel, 0.0f);
    if (rows <= 2) {
      for_row_tiles<2>(
          rows, [&](auto tile, int64_t) { float_tile<Fp8Step, tile>(weights, half, from, x.stride, steps, sums); });
      return;
    }
    alignas(64) uint8_t unpacked[kBlockK * 128];
    for (int64_t i = 0; i < steps; i += kBlockK) {
      const int64_t n = std::min(kBlockK, steps - i);
      unpack_fp8(weights + 32 * i, half, n, unpacked);
      for_row_tiles<6>(rows, [&](auto tile, int64_t r) {
        const uint8_t* tile_rows = from + r * x.stride + 4 * i;
        float_tile<Bf16Step, tile>(unpacked, 64 * n, tile_rows, x.stride, n, sums + r * kPanel);
      });
    }
  }
};

}  // namespace es::avx512
