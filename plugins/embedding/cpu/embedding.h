// Rows of an embedding table by id, and of the packed weight of a head that is tied to it.
#pragma once
#include <algorithm>
#include <cstring>
#include <limits>

#include "cpu/element.h"
#include "cpu/half.h"
#include "cpu/tensor.h"
#include "linear/cpu/weights.h"

namespace es {

// y[t] = row(ids[t]) of D floats: row(id, out) writes it. An id outside [0, N) gives a row of NaN and reads nothing.
template <int N, int D, class Row>
void embedding_rows(ThreadPool& pool, const int32_t* ids, MutRows y, int64_t T, Row&& row) {
  constexpr int64_t kElementsATask = 16384;
  pool.run_ranges(T, 1 + kElementsATask / D, [&](int64_t first, int64_t last, int) {
    for (int64_t t = first; t < last; ++t) {
      if (ids[t] >= 0 && ids[t] < N) {
        row(ids[t], y.row(t));
      } else {
        std::fill_n(y.row(t), D, std::numeric_limits<float>::quiet_NaN());
      }
    }
  });
}

// The table is [N, D] elements of type E (Fp32 or Bf16), which are widened.
template <class E, int N, int D>
void embedding(ThreadPool& pool, const uint8_t* table, const int32_t* ids, MutRows y, int64_t T) {
  constexpr int kLanes = VF::kLanes, kTail = D % kLanes;
  const auto* elements = reinterpret_cast<const typename E::Type*>(table);
  embedding_rows<N, D>(pool, ids, y, T, [&](int64_t id, float* out) {
    const auto* row = elements + id * D;
    for (int i = 0; i + kLanes <= D; i += kLanes) E::load(row + i).store(out + i);
    if constexpr (kTail > 0) E::load(row + D - kTail, kTail).store(out + D - kTail, kTail);
  });
}

// The table is an int8 weight [N, D] as linear kernels take it (linear/cpu/weights.h): y = scale * q, which is exact
// where scales are fp16.
template <class W, int N, int D>
void packed_embedding(ThreadPool& pool, const uint8_t* weight, const int32_t* ids, MutRows y, int64_t T) {
  static_assert(W::kBits == 8 && !W::kZeros);
  constexpr bool kPairs = kMatrixIsa == MatrixIsa::kAvx2;
  constexpr int kUnit = kPairs ? 2 : 4;  // bytes of one output that lie side by side
  constexpr uint8_t kPlus = kPairs ? 0 : 0x80;
  embedding_rows<N, D>(pool, ids, y, T, [&](int64_t id, float* out) {
    const uint8_t* panel = weight + id / kPanel * panel_bytes<W>(D);
    const int64_t output = id % kPanel;
    const int64_t column = output / kHalf * W::kHalfChunkBytes + output % kHalf * kUnit;
    for (int64_t g = 0; g < W::groups(D); g++) {
      const uint8_t* group = panel + g * (W::kPadded * kPanel + W::kScaleBytes);
      const int64_t bytes = W::kChunk * W::chunks(D, g), first = g * W::kGroup;
      uint8_t q[W::kPadded];
      for (int64_t k = 0; k < bytes; k += kUnit) {
        std::memcpy(q + k, group + k / W::kChunk * W::kChunkBytes + k % W::kChunk * kHalf + column, kUnit);
      }
      float scale;
      if constexpr (W::kPerChannel) {
        std::memcpy(&scale, panel + W::padded_k(D) * kPanel + output * 4, 4);
      } else {
        uint16_t half;
        std::memcpy(&half, group + bytes * kPanel + output * 2, 2);
        scale = fp16_to_float(half);
      }
      const int64_t size = std::min(W::kGroup, D - first);
      for (int64_t k = 0; k < size; k++) out[first + k] = scale * static_cast<int8_t>(q[k] ^ kPlus);
    }
  });
}

}  // namespace es
