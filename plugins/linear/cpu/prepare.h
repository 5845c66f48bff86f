// Activations as the kernels want them: float32 as they are, or rounded once per call.
#pragma once
#include "linear/cpu/float_rows.h"
#include "linear/cpu/integer_rows.h"

namespace es {

// f(row) for all rows: on the calling thread where waking the others would take longer.
template <class F>
void for_each_row(ThreadPool& pool, int64_t rows, int64_t k, F&& f) {
  const int64_t each = std::max<int64_t>(1, 8192 / k);
  if (rows <= 2 * each) {
    for (int64_t r = 0; r < rows; r++) f(r);
  } else {
    pool.run(ceil_div(rows, each), [&](int64_t task, int) {
      for (int64_t r = task * each; r < std::min(rows, (task + 1) * each); r++) f(r);
    });
  }
}

// Scratch that prepare() needs for `rows` rows.
template <class W>
constexpr int64_t prepared_bytes(int64_t k, int64_t rows) {
  if constexpr (std::is_same_v<W, Fp32Weight>)
    return 0;
  else if constexpr (std::is_same_v<W, Bf16Weight>)
    return kBf16Products ? rows * Bf16Rows::row_bytes(k) : 0;
  else if constexpr (kIsFp8<W>)
    return Prepared<W>::kCopied ? rows * Prepared<W>::row_bytes(k) : 0;
  else
    return Prepared<W>::bytes(k, rows);
}

// FP8 weights' rows of x, rounded as their inputs are to be.
template <class W>
Prepared<W> prepare_fp8(ThreadPool& pool, Rows x, int64_t k, int64_t rows, uint8_t* scratch, float input_scale) {
  using P = Prepared<W>;
  if constexpr (!P::kCopied) return {reinterpret_cast<const uint8_t*>(x.data), 4 * x.stride};
  const P prepared{scratch, P::row_bytes(k)};
  for_each_row(pool, rows, k, [&](int64_t r) {
    uint8_t* to = scratch + r * prepared.stride;
    if constexpr (!P::kRounded) {
      round_row(x.row(r), k, to);
    } else {
      float scale = input_scale;
      if constexpr (W::kInputs == Inputs::kDynamic) {
        const float m = absmax(x.row(r), k);
        scale = m < 0x1p-100f ? 0.0f : m / kFp8Largest;
      }
      round_row_fp8<P>(x.row(r), k, scale, to);
    }
  });
  return prepared;
}

// Prepares rows of x; `scratch` is 64-byte aligned and holds prepared_bytes(k, rows). `input_scale` is of static
// inputs.
template <class W>
Prepared<W> prepare(ThreadPool& pool, Rows x, int64_t k, int64_t rows, uint8_t* scratch, float input_scale) {
  constexpr bool kIsBf16 = std::is_same_v<W, Bf16Weight>;
  if constexpr (std::is_same_v<W, Fp32Weight> || (kIsBf16 && !kBf16Products)) {
    return {x};
  } else if constexpr (kIsBf16) {
    const int64_t stride = Bf16Rows::row_bytes(k);
    for_each_row(pool, rows, k, [&](int64_t r) { round_row(x.row(r), k, scratch + r * stride); });
    return {{scratch, stride}};
  } else if constexpr (kIsFp8<W>) {
    return prepare_fp8<W>(pool, x, k, rows, scratch, input_scale);
  } else {
    const Prepared<W> prepared = Prepared<W>::at(scratch, k, rows);
    for_each_row(pool, rows, k, [&](int64_t r) { quantize_row<W>(x.row(r), k, input_scale, prepared, r); });
    return prepared;
  }
}

}  // namespace es
