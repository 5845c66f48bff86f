// One panel of 32 outputs times a block of rows, on the instruction set this is compiled for:
// run_panel: acc[rows][32] = x[row .. row + rows] * panel, rows <= kRowBlock.
#pragma once
#include "linear/cpu/fp8_panel.h"
#include "linear/cpu/prepare.h"

#if defined(__AVX512VNNI__) || defined(ES_EMULATE_AVX512) || defined(ES_EMULATE_AMX)
#include "linear/cpu/amx_panel.h"
#include "linear/cpu/float_avx512.h"
#include "linear/cpu/integer_avx512.h"

namespace es {

template <class W>
void run_panel(const uint8_t* panel, int64_t k, const Prepared<W>& x, int64_t row, int64_t rows, float* acc) {
  if constexpr (std::is_same_v<W, Fp32Weight>) {
    const auto* first = reinterpret_cast<const uint8_t*>(x.row(row));
    avx512::float_panel<avx512::Fp32Step>(panel, k, first, 4 * x.stride, rows, acc);
  } else if constexpr (std::is_same_v<W, Bf16Weight>) {
    if constexpr (kMatrixIsa == MatrixIsa::kAmx)
      amx::bf16_panel(panel, k, x.row(row), x.stride, rows, acc);
    else
      avx512::float_panel<avx512::Bf16Step>(panel, round_up(k, kBf16Pad) / 2, x.row(row), x.stride, rows, acc);
  } else if constexpr (kIsFp8<W>) {
    using Sums = std::conditional_t<kMatrixIsa == MatrixIsa::kAmx, amx::Fp8Sums, avx512::Fp8Sums>;
    fp8_panel<Sums>(panel, k, x, row, rows, acc);
  } else {
    if constexpr (kMatrixIsa == MatrixIsa::kAmx)
      if (rows > amx::kFewRows<W>) return amx::integer_panel<W>(panel, k, x, row, rows, acc);
    avx512::integer_panel<W>(panel, k, x, row, rows, acc);
  }
}

}  // namespace es

#else
#include "linear/cpu/float_avx2.h"
#include "linear/cpu/fp8_avx2.h"
#include "linear/cpu/integer_avx2.h"

namespace es {

template <class W>
void run_panel(const uint8_t* panel, int64_t k, const Prepared<W>& x, int64_t row, int64_t rows, float* acc) {
  if constexpr (std::is_same_v<W, Fp32Weight>)
    avx2::float_panel(reinterpret_cast<const float*>(panel), k, Rows{x.row(row), x.stride}, rows, acc);
  else if constexpr (std::is_same_v<W, Bf16Weight>)
    avx2::float_panel(reinterpret_cast<const uint16_t*>(panel), k, Rows{x.row(row), x.stride}, rows, acc);
  else if constexpr (kIsFp8<W>)
    fp8_panel<avx2::Fp8Sums>(panel, k, x, row, rows, acc);
  else
    avx2::integer_panel<W>(panel, k, x, row, rows, acc);
}

}  // namespace es

#endif
