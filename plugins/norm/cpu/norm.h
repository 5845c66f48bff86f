// RMSNorm (Zhang and Sennrich, 2019) and LayerNorm (Ba et al., 2016), alone and after a residual addition.
//
// Each row is reduced over kSums vector accumulators in an order that depends on D alone, so a row's bits do not
// depend on how many rows there are. In place (y = x, sum = x or skip) is allowed.
#pragma once
#include <cmath>

#include "cpu/simd.h"
#include "cpu/tensor.h"
#include "cpu/thread_pool.h"

namespace es {

namespace detail {

// The sum over i in [0, D) of f(x[i .. i + kLanes)); f must map a zero lane of the tail to zero.
template <int D, class F>
inline float sum_row(const float* x, F&& f) {
  constexpr int kLanes = VF::kLanes, kSums = 4, kTail = D % kLanes, kWhole = D - kTail;
  VF sums[kSums] = {VF::zero(), VF::zero(), VF::zero(), VF::zero()};
  int i = 0;
  for (; i + kSums * kLanes <= kWhole; i += kSums * kLanes)
    for (int s = 0; s < kSums; ++s) sums[s] = sums[s] + f(VF::load(x + i + s * kLanes), kLanes);
  for (int s = 0; i < kWhole; i += kLanes, ++s) sums[s] = sums[s] + f(VF::load(x + i), kLanes);
  if constexpr (kTail > 0) sums[0] = sums[0] + f(VF::load(x + kWhole, kTail), kTail);
  return reduce_add((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// f(i, n) for each vector of n lanes at i that covers [0, D).
template <int D, class F>
inline void each_vector(F&& f) {
  constexpr int kLanes = VF::kLanes, kTail = D % kLanes;
  for (int i = 0; i + kLanes <= D; i += kLanes) f(i, kLanes);
  if constexpr (kTail > 0) f(D - kTail, kTail);
}

template <int D>
inline void rms_norm_row(const float* x, const float* weight, float epsilon, float* y) {
  const float squares = sum_row<D>(x, [](VF v, int) { return v * v; });
  const VF scale = VF::broadcast(1.0f / std::sqrt(squares / D + epsilon));
  each_vector<D>([&](int i, int n) {
    VF v = load_lanes(x + i, n) * scale;
    if (weight) v = v * load_lanes(weight + i, n);
    store_lanes(v, y + i, n);
  });
}

template <int D>
inline void layer_norm_row(const float* x, const float* weight, const float* bias, float epsilon, float* y) {
  const VF mean = VF::broadcast(sum_row<D>(x, [](VF v, int) { return v; }) / D);
  const float squares = sum_row<D>(x, [&](VF v, int n) {
    VF centred = v - mean;
    if (n < VF::kLanes) {  // a lane beyond the row holds -mean here
      float lanes[VF::kLanes];
      centred.store(lanes);
      centred = VF::load(lanes, n);
    }
    return centred * centred;
  });
  const VF scale = VF::broadcast(1.0f / std::sqrt(squares / D + epsilon));
  each_vector<D>([&](int i, int n) {
    VF v = (load_lanes(x + i, n) - mean) * scale;
    if (weight) v = v * load_lanes(weight + i, n);
    if (bias) v = v + load_lanes(bias + i, n);
    store_lanes(v, y + i, n);
  });
}

template <int D>
inline void add_row(const float* x, const float* skip, float* sum) {
  each_vector<D>([&](int i, int n) { store_lanes(load_lanes(x + i, n) + load_lanes(skip + i, n), sum + i, n); });
}

// f(t) for t in [0, T), shared out in pieces worth a barrier; `width` is the number of elements a token has.
template <class F>
inline void each_token(ThreadPool& pool, int64_t T, int64_t width, F&& f) {
  constexpr int64_t kElementsATask = 16384;
  pool.run_ranges(T, 1 + kElementsATask / width, [&](int64_t first, int64_t last, int) {
    for (int64_t t = first; t < last; ++t) f(t);
  });
}

}  // namespace detail

// y[t][h] = x[t][h] / sqrt(mean(x[t][h]^2) + epsilon) * weight, over rows of D; a null weight is all ones.
template <int H, int D>
void rms_norm(ThreadPool& pool, Heads x, const float* weight, float epsilon, MutHeads y, int64_t T) {
  detail::each_token(pool, T, H * D, [&](int64_t t) {
    for (int h = 0; h < H; ++h) detail::rms_norm_row<D>(x.at(t, h), weight, epsilon, y.at(t, h));
  });
}

// sum = x + skip; y = RMSNorm(sum).
template <int D>
void skip_rms_norm(ThreadPool& pool, Rows x, Rows skip, const float* weight, float epsilon, MutRows y, MutRows sum,
                   int64_t T) {
  detail::each_token(pool, T, D, [&](int64_t t) {
    detail::add_row<D>(x.row(t), skip.row(t), sum.row(t));
    detail::rms_norm_row<D>(sum.row(t), weight, epsilon, y.row(t));
  });
}

// y[t][h] = (x - mean(x)) / sqrt(var(x) + epsilon) * weight + bias; null weight and bias are ones and zeros.
template <int H, int D>
void layer_norm(ThreadPool& pool, Heads x, const float* weight, const float* bias, float epsilon, MutHeads y,
                int64_t T) {
  detail::each_token(pool, T, H * D, [&](int64_t t) {
    for (int h = 0; h < H; ++h) detail::layer_norm_row<D>(x.at(t, h), weight, bias, epsilon, y.at(t, h));
  });
}

// sum = x + skip; y = LayerNorm(sum).
template <int D>
void skip_layer_norm(ThreadPool& pool, Rows x, Rows skip, const float* weight, const float* bias, float epsilon,
                     MutRows y, MutRows sum, int64_t T) {
  detail::each_token(pool, T, D, [&](int64_t t) {
    detail::add_row<D>(x.row(t), skip.row(t), sum.row(t));
    detail::layer_norm_row<D>(sum.row(t), weight, bias, epsilon, y.row(t));
  });
}

}  // namespace es
