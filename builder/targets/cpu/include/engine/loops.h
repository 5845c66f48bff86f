// What the loops of an emitted engine call: element-wise helpers and functions along an axis of a strided tensor.
// An element's arithmetic never depends on how many tokens a step has.
#pragma once
#include <cmath>
#include <cstdint>

#include "cpu/simd.h"
#include "cpu/thread_pool.h"

namespace es::engine {

// f(row) for every row, shared out among the threads when there is enough work (elements a row) for that.
template <class F>
void for_each_row(ThreadPool& pool, int64_t rows, int64_t work, F&& f) {
  constexpr int64_t kWorthwhile = 16384;
  pool.run_ranges(rows, kWorthwhile / work + 1, [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row) f(row);
  });
}

// Loads and stores of a whole vector, or of the lanes that are left at the end of a row.
struct Whole {};
inline VF load(const float* p, Whole) { return VF::load(p); }
inline VF load(const float* p, int lanes) { return VF::load(p, lanes); }
inline void store(VF x, float* p, Whole) { x.store(p); }
inline void store(VF x, float* p, int lanes) { x.store(p, lanes); }

// f(i, lanes) for the vectors that cover [0, n).
template <class F>
inline void for_each_vector(int64_t n, F&& f) {
  int64_t i = 0;
  for (; i + VF::kLanes <= n; i += VF::kLanes) f(i, Whole{});
  if (i < n) f(i, static_cast<int>(n - i));
}

// NaN wins, as in PyTorch.
inline float least(float a, float b) { return a < b || a != a ? a : b; }
inline float greatest(float a, float b) { return a > b || a != a ? a : b; }
inline int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }
inline int32_t greatest(int32_t a, int32_t b) { return a > b ? a : b; }
inline float sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }
inline int32_t sign(int32_t x) { return (x > 0) - (x < 0); }
inline float power(float x, float y) { return std::pow(x, y); }
// The remainder with the sign of the divisor.
inline int32_t modulo(int32_t a, int32_t b) {
  const int32_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
// An index that may count from the end.
inline int64_t wrapped(int64_t i, int64_t size) { return i < 0 ? i + size : i; }

// n elements of x, `xs` apart. Results: one value at y, or n of them `ys` apart.
template <class T, class F>
inline T fold(int64_t n, const T* x, int64_t xs, T start, F&& f) {
  T result = start;
  for (int64_t i = 0; i < n; ++i) result = f(result, x[i * xs]);
  return result;
}
template <class T>
inline void axis_sum(int64_t n, const T* x, int64_t xs, T* y, int64_t) {
  *y = fold(n, x, xs, T(0), [](T a, T b) { return a + b; });
}
template <class T>
inline void axis_prod(int64_t n, const T* x, int64_t xs, T* y, int64_t) {
  *y = fold(n, x, xs, T(1), [](T a, T b) { return a * b; });
}
template <class T>
inline void axis_max(int64_t n, const T* x, int64_t xs, T* y, int64_t) {
  *y = fold(n, x, xs, x[0], [](T a, T b) { return greatest(a, b); });
}
template <class T>
inline void axis_min(int64_t n, const T* x, int64_t xs, T* y, int64_t) {
  *y = fold(n, x, xs, x[0], [](T a, T b) { return least(a, b); });
}
inline void axis_mean(int64_t n, const float* x, int64_t xs, float* y, int64_t) {
  axis_sum(n, x, xs, y, 0);
  *y /= static_cast<float>(n);
}
inline void axis_l1(int64_t n, const float* x, int64_t xs, float* y, int64_t) {
  *y = fold(n, x, xs, 0.0f, [](float a, float b) { return a + std::fabs(b); });
}
inline void axis_sum_square(int64_t n, const float* x, int64_t xs, float* y, int64_t) {
  *y = fold(n, x, xs, 0.0f, [](float a, float b) { return std::fma(b, b, a); });
}
inline void axis_l2(int64_t n, const float* x, int64_t xs, float* y, int64_t) {
  axis_sum_square(n, x, xs, y, 0);
  *y = std::sqrt(*y);
}
inline void axis_log_sum_exp(int64_t n, const float* x, int64_t xs, float* y, int64_t) {
  float top;
  axis_max(n, x, xs, &top, 0);
  *y = top + std::log(fold(n, x, xs, 0.0f, [=](float a, float b) { return a + std::exp(b - top); }));
}
inline void axis_arg_max(int64_t n, const float* x, int64_t xs, int32_t* y, int64_t) {
  int32_t best = 0;
  for (int64_t i = 1; i < n; ++i)
    if (x[i * xs] > x[best * xs]) best = static_cast<int32_t>(i);
  *y = best;
}
inline void axis_softmax(int64_t n, const float* x, int64_t xs, float* y, int64_t ys) {
  float top, sum = 0.0f;
  axis_max(n, x, xs, &top, 0);
  for (int64_t i = 0; i < n; ++i) sum += y[i * ys] = std::exp(x[i * xs] - top);
  for (int64_t i = 0; i < n; ++i) y[i * ys] /= sum;
}
inline void axis_log_softmax(int64_t n, const float* x, int64_t xs, float* y, int64_t ys) {
  float total;
  axis_log_sum_exp(n, x, xs, &total, 0);
  for (int64_t i = 0; i < n; ++i) y[i * ys] = x[i * xs] - total;
}
template <class T>
inline void axis_cum_sum(int64_t n, const T* x, int64_t xs, T* y, int64_t ys) {
  T sum = 0;
  for (int64_t i = 0; i < n; ++i) y[i * ys] = sum += x[i * xs];
}
// The k largest, descending; of equals the first comes first.
inline void axis_top_k(int64_t n, const float* x, int64_t xs, float* y, int64_t ys, int32_t* at, int64_t as,
                       int64_t k) {
  for (int64_t j = 0; j < k; ++j) {
    int64_t best = -1;
    for (int64_t i = 0; i < n; ++i) {
      const bool after_last =
          j == 0 || x[i * xs] < y[(j - 1) * ys] || (x[i * xs] == y[(j - 1) * ys] && i > at[(j - 1) * as]);
      if (after_last && (best < 0 || x[i * xs] > x[best * xs])) best = i;
    }
    y[j * ys] = best < 0 ? NAN : x[best * xs];
    at[j * as] = static_cast<int32_t>(best < 0 ? 0 : best);
  }
}

}  // namespace es::engine
