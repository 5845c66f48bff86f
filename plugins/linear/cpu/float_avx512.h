// fp32 and bf16 panels on AVX-512: as on AVX2, one accumulator an output, k ascending; bf16 meets rows rounded to bf16
// and adds two products a step.
#pragma once
#include "cpu/avx512.h"
#include "linear/cpu/prepare.h"

namespace es::avx512 {

constexpr int64_t kBlockK = 128;  // steps of a panel, 16 KB, that tiles of rows share in the first-level cache

// One step: an fp32 element, or a pair of bf16, of R rows times 32 outputs whose halves lie `half` bytes apart.
struct Fp32Step {
  ES_INLINE static v512::Floats add(v512::Floats sum, const uint8_t* w, const uint8_t* x) {
    float value;
    std::memcpy(&value, x, 4);
    return v512::fma(v512::broadcast(value), v512::load(reinterpret_cast<const float*>(w)), sum);
  }
};
struct Bf16Step {
  ES_INLINE static v512::Floats add(v512::Floats sum, const uint8_t* w, const uint8_t* x) {
    int32_t pair;
    std::memcpy(&pair, x, 4);
    return v512::dot_bf16(sum, v512::load_words(w), v512::broadcast_word(pair));
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
    _mm_prefetch(reinterpret_cast<const char*>(w + 64 * i) + 2048, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(w + half + 64 * i) + 2048, _MM_HINT_T0);
    ES_UNROLL for (int r = 0; r < R; r++) {
      sum[r][0] = Step::add(sum[r][0], w + 64 * i, x + r * stride + 4 * i);
      sum[r][1] = Step::add(sum[r][1], w + half + 64 * i, x + r * stride + 4 * i);
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

}  // namespace es::avx512
