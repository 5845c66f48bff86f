// y = act(x Wg^T + bg) * (x Wu^T + bu) in one pass: a panel of gate and the same panel of up lie next to each other.
#pragma once
#include "linear/cpu/linear.h"

namespace es {

// Bytes of scratch that gated_mlp() needs, 64-byte aligned.
template <class W, int N, int K>
int64_t gated_mlp_scratch_bytes(int64_t max_rows, int threads) {
  return linear_scratch_bytes<W, N, K>(max_rows, threads);
}

// x [M, K], weight packed from gate and up [N, K] each, biases [N] or null, y [M, N]; input_scale as linear() has it.
template <class W, int N, int K, class Act>
void gated_mlp(ThreadPool& pool, const uint8_t* weight, Rows x, const float* gate_bias, const float* up_bias, MutRows y,
               int64_t M, uint8_t* scratch, float input_scale = 0) {
  constexpr int64_t bytes = panel_bytes<W>(K);
  const Prepared<W> prepared = prepare<W>(pool, x, K, M, scratch, input_scale);
  for_panels(pool, ceil_div(N, kPanel), 2 * bytes, M, [&](int64_t panel, int64_t row, int64_t rows) {
    alignas(64) float gates[kRowBlock * kPanel], ups[kRowBlock * kPanel];
    run_panel<W>(weight + panel * 2 * bytes, K, prepared, row, rows, gates);
    run_panel<W>(weight + panel * 2 * bytes + bytes, K, prepared, row, rows, ups);
    const int64_t at = panel * kPanel;
    for (int64_t r = 0; r < rows; r++)
      for_outputs(N - at, [&](int64_t i, int lanes) {
        VF gate = VF::load(gates + r * kPanel + i), up = VF::load(ups + r * kPanel + i);
        if (gate_bias) gate = gate + VF::load(gate_bias + at + i, lanes);
        if (up_bias) up = up + VF::load(up_bias + at + i, lanes);
        (Act::apply(gate) * up).store(y.row(row + r) + at + i, lanes);
      });
  });
}

}  // namespace es
