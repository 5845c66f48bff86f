// y = act(x W^T + bias) + residual, for every weight type. A row's result does not depend on the rows beside it, on how
// many there are, or on the number of threads.
#pragma once
#include "linear/cpu/activation_functions.h"
#include "linear/cpu/panel.h"

namespace es {

// Bytes of scratch that linear() needs, 64-byte aligned.
template <class W, int N, int K>
int64_t linear_scratch_bytes(int64_t max_rows, int /*threads*/) {
  return prepared_bytes<W>(K, max_rows);
}

// The 32 outputs of a panel from `first` on, of which n exist, in vectors: f(offset, lanes that exist).
template <class F>
ES_INLINE void for_outputs(int64_t n, F&& f) {
  for (int64_t i = 0; i < kPanel && i < n; i += VF::kLanes)
    f(i, static_cast<int>(std::min<int64_t>(VF::kLanes, n - i)));
}

// x [M, K], weight packed [N, K], bias [N] or null, residual [M, N] with data or null, y [M, N] (may be the residual).
// input_scale: of x, where the weight type has static inputs.
template <class W, int N, int K, class Act>
void linear(ThreadPool& pool, const uint8_t* weight, Rows x, const float* bias, Rows residual, MutRows y, int64_t M,
            uint8_t* scratch, float input_scale = 0) {
  constexpr int64_t bytes = panel_bytes<W>(K);
  const Prepared<W> prepared = prepare<W>(pool, x, K, M, scratch, input_scale);
  for_panels(pool, ceil_div(N, kPanel), bytes, M, [&](int64_t panel, int64_t row, int64_t rows) {
    alignas(64) float acc[kRowBlock * kPanel];
    run_panel<W>(weight + panel * bytes, K, prepared, row, rows, acc);
    const int64_t at = panel * kPanel;
    for (int64_t r = 0; r < rows; r++)
      for_outputs(N - at, [&](int64_t i, int lanes) {
        VF value = VF::load(acc + r * kPanel + i);
        if (bias) value = value + VF::load(bias + at + i, lanes);
        value = Act::apply(value);
        if (residual.data) value = value + VF::load(residual.row(row + r) + at + i, lanes);
        value.store(y.row(row + r) + at + i, lanes);
      });
  });
}

}  // namespace es
