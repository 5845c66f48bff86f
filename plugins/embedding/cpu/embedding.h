// Rows of an embedding table by id.
#pragma once
#include <limits>

#include "cpu/element.h"
#include "cpu/tensor.h"
#include "cpu/thread_pool.h"

namespace es {

// y[t] = table[ids[t]], widened to float32; the table is [N, D] elements of type E (Fp32 or Bf16). An id outside
// [0, N) gives a row of NaN and reads nothing outside the table.
template <class E, int N, int D>
void embedding(ThreadPool& pool, const uint8_t* table, const int32_t* ids, MutRows y, int64_t T) {
  constexpr int kLanes = VF::kLanes, kTail = D % kLanes;
  constexpr int64_t kElementsATask = 16384;
  const auto* elements = reinterpret_cast<const typename E::Type*>(table);
  pool.run_ranges(T, 1 + kElementsATask / D, [&](int64_t first, int64_t last, int) {
    for (int64_t t = first; t < last; ++t) {
      float* out = y.row(t);
      if (ids[t] < 0 || ids[t] >= N) {
        for (int i = 0; i < D; ++i) out[i] = std::numeric_limits<float>::quiet_NaN();
        continue;
      }
      const auto* row = elements + int64_t{ids[t]} * D;
      for (int i = 0; i + kLanes <= D; i += kLanes) E::load(row + i).store(out + i);
      if constexpr (kTail > 0) E::load(row + D - kTail, kTail).store(out + D - kTail, kTail);
    }
  });
}

}  // namespace es
