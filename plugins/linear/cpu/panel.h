// One panel of 32 outputs times a block of rows, on the instruction set this is compiled for.
#pragma once
#include "linear/cpu/prepare.h"
#include "linear/cpu/weights.h"

#if defined(ES_EMULATE_AVX512) || defined(ES_EMULATE_AMX) || defined(__AVX512VNNI__)
#else
#include "linear/cpu/float_avx2.h"
#include "linear/cpu/integer_avx2.h"
#endif

namespace es {

// acc[rows][32] = x[row .. row + rows] * panel, rows <= kRowBlock.
template <class W>
void run_panel(const uint8_t* panel, int64_t k, const Prepared<W>& x, int64_t row, int64_t rows, float* acc) {
  if constexpr (std::is_same_v<W, Fp32Weight>) {
    avx2::float_panel(reinterpret_cast<const float*>(panel), k, Rows{x.row(row), x.stride}, rows, acc);
  } else if constexpr (std::is_same_v<W, Bf16Weight>) {
    avx2::float_panel(reinterpret_cast<const uint16_t*>(panel), k, Rows{x.row(row), x.stride}, rows, acc);
  } else {
    avx2::integer_panel<W>(panel, k, x, row, rows, acc);
  }
}

}  // namespace es
