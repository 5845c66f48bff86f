// cap * tanh(x / cap), element by element.
#pragma once
#include <cmath>

#include "cpu/tensor.h"
#include "cpu/thread_pool.h"

namespace softcap {

template <int D>
void softcap(es::ThreadPool& pool, es::Rows x, es::MutRows y, int64_t M, float cap) {
  pool.run_ranges(M, 1 + 4096 / D, [&](int64_t first, int64_t last, int) {
    for (int64_t m = first; m < last; ++m) {
      for (int i = 0; i < D; ++i) y.row(m)[i] = cap * std::tanh(x.row(m)[i] / cap);
    }
  });
}

}  // namespace softcap
