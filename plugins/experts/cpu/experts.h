// The weighted sum of what a token's experts compute. Rows are sorted by expert and multiplied without padding; a row's
// result does not depend on the rows beside it, on how many there are, or on the number of threads: its experts' sums
// are added in the order in which the router names them.
#pragma once
#include "experts/cpu/routing.h"
#include "linear/cpu/linear.h"

namespace es {

// Of all experts, one after the other: packed up [I, H] (gate and up, panel by panel, where experts are gated) and down
// [H, I]; biases [E, I] and [E, H] or null. See gate.py for the limit, 0 being none, and the offset.
struct ExpertsWeights {
  const uint8_t *up, *down;
  const float *gate_bias, *up_bias, *down_bias;
  float limit, up_offset;
};

// Up, Down: the weight types; Act: of the gate, or of up where experts are not Gated.
template <class Up, class Down, class Act, bool Gated, int E, int Active, int H, int I>
class Experts {
  using Routes = Routing<E, Active>;
  static constexpr int64_t kUpBytes = panel_bytes<Up>(H) * (Gated ? 2 : 1), kDownBytes = panel_bytes<Down>(I);
  static constexpr int64_t kUpPanels = ceil_div(I, kPanel), kDownPanels = ceil_div(H, kPanel);

  static constexpr int64_t floats(int64_t rows, int64_t columns) { return round_up(4 * rows * columns, 64); }
  static constexpr int64_t prepared(int64_t pairs) {
    return std::max(prepared_bytes<Up>(H, pairs), prepared_bytes<Down>(I, pairs));
  }

 public:
  // 64-byte aligned.
  static int64_t scratch_bytes(int64_t max_rows) {
    const int64_t pairs = max_rows * Active;
    return round_up(Routes::bytes(max_rows), 64) + floats(pairs, H) + floats(pairs, I) + prepared(pairs);
  }

  // x, y [M, H]; indices [M, Active], rows `stride` apart; weights [M, Active].
  static void run(ThreadPool& pool, const ExpertsWeights& w, Rows x, const int32_t* indices, int64_t stride,
                  Rows weights, MutRows y, int64_t M, uint8_t* scratch) {
    const Routes routes(indices, stride, M, scratch);
    scratch += round_up(Routes::bytes(M), 64);
    float* const outer = reinterpret_cast<float*>(scratch);  // x by pairs, then y by pairs
    float* const inner = reinterpret_cast<float*>(scratch + floats(M * Active, H));
    uint8_t* const rest = scratch + floats(M * Active, H) + floats(M * Active, I);
    project_up(pool, w, routes, M == 1 ? x : gathered(pool, routes, x, outer), M == 1, inner, rest);
    project_down(pool, w, routes, inner, outer, rest);
    for_each_row(pool, M, H * Active, [&](int64_t t) { add(routes, t, weights.row(t), outer, y.row(t)); });
  }

 private:
  static Rows gathered(ThreadPool& pool, const Routes& routes, Rows x, float* to) {
    for_each_row(pool, routes.pairs(), H, [&](int64_t p) { std::copy_n(x.row(routes.token(p)), H, to + p * H); });
    return {to, H};
  }

  // `single`: x is the one row of all pairs.
  static void project_up(ThreadPool& pool, const ExpertsWeights& w, const Routes& routes, Rows x, bool single,
                         float* inner, uint8_t* scratch) {
    const Prepared<Up> rows = prepare<Up>(pool, x, H, single ? 1 : routes.pairs(), scratch, 0);
    routes.for_panels(pool, kUpPanels, kUpBytes, [&](const ExpertBlock& block, int64_t panel) {
      alignas(64) float gates[kRowBlock * kPanel], ups[kRowBlock * kPanel];
      const uint8_t* at = w.up + (block.expert * kUpPanels + panel) * kUpBytes;
      const int64_t first = single ? 0 : block.first, column = panel * kPanel,
                    bias = block.expert * int64_t{I} + column;
      if constexpr (Gated) {
        run_panel<Up>(at, H, rows, first, block.rows, gates);
        at += panel_bytes<Up>(H);
      }
      run_panel<Up>(at, H, rows, first, block.rows, ups);
      for (int64_t r = 0; r < block.rows; r++)
        for_outputs(I - column, [&](int64_t i, int lanes) {
          VF up = VF::load(ups + r * kPanel + i);
          if (w.up_bias) up = up + VF::load(w.up_bias + bias + i, lanes);
          if constexpr (Gated) {
            VF gate = VF::load(gates + r * kPanel + i);
            if (w.gate_bias) gate = gate + VF::load(w.gate_bias + bias + i, lanes);
            up = gated(gate, up, w.limit, w.up_offset);
          } else {
            up = Act::apply(up);
          }
          up.store(inner + (block.first + r) * I + column + i, lanes);
        });
    });
  }

  ES_INLINE static VF gated(VF gate, VF up, float limit, float up_offset) {
    if (limit > 0) {
      gate = min(VF::broadcast(limit), gate);  // a NaN stays one
      up = max(VF::broadcast(-limit), min(VF::broadcast(limit), up));
    }
    if (up_offset != 0) up = up + VF::broadcast(up_offset);
    return Act::apply(gate) * up;
  }

  static void project_down(ThreadPool& pool, const ExpertsWeights& w, const Routes& routes, const float* inner,
                           float* outer, uint8_t* scratch) {
    const Prepared<Down> rows = prepare<Down>(pool, {inner, I}, I, routes.pairs(), scratch, 0);
    routes.for_panels(pool, kDownPanels, kDownBytes, [&](const ExpertBlock& block, int64_t panel) {
      alignas(64) float acc[kRowBlock * kPanel];
      const int64_t column = panel * kPanel;
      run_panel<Down>(w.down + (block.expert * kDownPanels + panel) * kDownBytes, I, rows, block.first, block.rows,
                      acc);
      for (int64_t r = 0; r < block.rows; r++)
        for_outputs(H - column, [&](int64_t i, int lanes) {
          VF value = VF::load(acc + r * kPanel + i);
          if (w.down_bias) value = value + VF::load(w.down_bias + block.expert * int64_t{H} + column + i, lanes);
          value.store(outer + (block.first + r) * H + column + i, lanes);
        });
    });
  }

  static void add(const Routes& routes, int64_t token, const float* weights, const float* outer, float* y) {
    for (int64_t i = 0; i < H; i += VF::kLanes) {
      const int lanes = static_cast<int>(std::min<int64_t>(VF::kLanes, H - i));
      VF sum = VF::zero();
      for (int64_t j = 0; j < Active; j++) {
        const int64_t pair = routes.pair(token, j);
        if (pair >= 0) sum = fma(VF::broadcast(weights[j]), VF::load(outer + pair * H + i, lanes), sum);
      }
      sum.store(y + i, lanes);
    }
  }
};

}  // namespace es
