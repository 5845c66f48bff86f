// Elementary functions and activations on VF, and the same on one float.
//
// Argument reductions are the classical ones (Cody and Waite, "Software Manual for the Elementary Functions", 1980);
// the polynomials were fitted in float64 by iteratively reweighted least squares (Lawson). Errors against float64 are
// a few units in the last place; tests/plugins/cpu/test_vector_math.py states and holds them.
#pragma once
#include <limits>

#include "cpu/vf.h"

namespace es {

namespace detail {
// c[0] + x (c[1] + x (c[2] + ...))
template <int N>
inline VF horner(VF x, const float (&c)[N]) {
  VF y = VF::broadcast(c[N - 1]);
  for (int i = N - 2; i >= 0; --i) y = fma(y, x, VF::broadcast(c[i]));
  return y;
}

// x = mantissa * 2^exponent
struct Scaled {
  VF mantissa, exponent;
};

// e^x for x in [-150, 150]
inline Scaled exp_scaled(VF x) {
  constexpr float kLog2E = 0x1.715476p+0f, kLn2Hi = 0x1.62e4p-1f, kLn2Lo = 0x1.7f7d1cp-20f;
  constexpr float kPoly[] = {0x1p-1f, 0x1.55548ep-3f, 0x1.55545ep-5f, 0x1.123b46p-7f, 0x1.6db41p-10f};
  const VF n = round(x * VF::broadcast(kLog2E));
  const VF r = fnma(n, VF::broadcast(kLn2Lo), fnma(n, VF::broadcast(kLn2Hi), x));
  return {fma(horner(r, kPoly) * r, r, r) + VF::broadcast(1.0f), n};
}
}  // namespace detail

// e^x; subnormal results are kept, overflow gives infinity, NaN gives NaN.
inline VF exp(VF x) {
  const auto y = detail::exp_scaled(min(VF::broadcast(90.0f), max(VF::broadcast(-105.0f), x)));
  const VF half = round(y.exponent * VF::broadcast(0.5f));  // two factors: 2^exponent alone may not be a normal number
  return y.mantissa * exp2_whole(half) * exp2_whole(y.exponent - half);
}

// e^x for x <= 0 (softmax); results below 2^-126 are flushed to zero, as is that of -infinity.
inline VF exp_nonpositive(VF x) {
  constexpr float kLowest = -87.0f;
  const auto y = detail::exp_scaled(max(VF::broadcast(kLowest), x));
  return select(less(x, VF::broadcast(kLowest)), VF::zero(), y.mantissa * exp2_whole(y.exponent));
}

// Natural logarithm; log(0) = -infinity, negative numbers give NaN.
inline VF log(VF x) {
  constexpr float kLn2Hi = 0x1.62e4p-1f, kLn2Lo = 0x1.7f7d1cp-20f;
  constexpr float kPoly[] = {0x1.555546p-2f,  -0x1.ffffeep-3f, 0x1.99a546p-3f,  -0x1.5562e2p-3f, 0x1.2332bap-3f,
                             -0x1.fb4352p-4f, 0x1.e6511cp-4f,  -0x1.e2e8fep-4f, 0x1.1b40eap-4f};
  const VF smallest_normal = VF::broadcast(std::numeric_limits<float>::min());
  const VMask subnormal = less(x, smallest_normal);
  const VF scaled = select(subnormal, x * VF::broadcast(0x1p23f), x);
  VF mantissa;
  VF e = split_exponent(scaled, &mantissa);
  e = e - select(subnormal, VF::broadcast(23.0f), VF::zero());
  const VF t = mantissa - VF::broadcast(1.0f), t2 = t * t;
  VF y = fma(e, VF::broadcast(kLn2Lo), detail::horner(t, kPoly) * t2 * t);
  y = fma(e, VF::broadcast(kLn2Hi), fnma(t2, VF::broadcast(0.5f), y) + t);
  const VF infinity = VF::broadcast(std::numeric_limits<float>::infinity());
  y = select(less(x, infinity), y, x);  // infinity and NaN are their own logarithms
  y = select(equal(x, VF::zero()), VF::zero() - infinity, y);
  return select(less(x, VF::zero()), VF::broadcast(std::numeric_limits<float>::quiet_NaN()), y);
}

inline VF sigmoid(VF x) {
  const VF one = VF::broadcast(1.0f);
  return one / (one + exp(VF::zero() - x));
}

inline VF tanh(VF x) {
  constexpr float kPoly[] = {-0x1.555534p-2f, 0x1.110768p-3f, -0x1.b84448p-5f, 0x1.5256d4p-6f, -0x1.76ac08p-8f};
  const VF a = abs(x), one = VF::broadcast(1.0f), two = VF::broadcast(2.0f);
  const VF s = x * x;
  const VF small = fma(detail::horner(s, kPoly) * s, x, x);
  const VF large = one - two / (one + exp(a * two));
  return select(less(a, VF::broadcast(0.625f)), small, copysign(large, x));
}

// The error function: a polynomial near zero, 1 - exp(t P(t)) beyond, where t P(t) fits log(erfc(t)).
inline VF erf(VF x) {
  constexpr float kSmall[] = {0x1.06eba8p-3f, -0x1.812744p-2f,  0x1.ce2e1cp-4f, -0x1.b80ff2p-6f,
                              0x1.54d42ap-8f, -0x1.aaa2d6p-11f, 0x1.5e062cp-14f};
  constexpr float kLarge[] = {-0x1.20ee9ep+0f, -0x1.453682p-1f, -0x1.b2f1ccp-4f, 0x1.84a1bap-6f,
                              -0x1.dadd36p-9f, 0x1.4d82f8p-12f, -0x1.692886p-17f};
  const VF a = abs(x);
  const VF t = min(VF::broadcast(4.0f), a);  // erf(4) rounds to 1
  const VF small = fma(detail::horner(x * x, kSmall), x, x);
  const VF large = VF::broadcast(1.0f) - exp(detail::horner(t, kLarge) * t);
  return select(is_nan(x), x, select(less(a, VF::broadcast(0.92f)), small, copysign(large, x)));
}

inline VF silu(VF x) { return x / (VF::broadcast(1.0f) + exp(VF::zero() - x)); }

inline VF gelu(VF x) {
  constexpr float kSqrtHalf = 0x1.6a09e6p-1f;
  return x * VF::broadcast(0.5f) * (VF::broadcast(1.0f) + erf(x * VF::broadcast(kSqrtHalf)));
}

// Hendrycks and Gimpel's approximation: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
inline VF gelu_tanh(VF x) {
  constexpr float kSqrt2OverPi = 0x1.988454p-1f;
  const VF inner = fma(x * x * x, VF::broadcast(0.044715f), x) * VF::broadcast(kSqrt2OverPi);
  return x * VF::broadcast(0.5f) * (VF::broadcast(1.0f) + tanh(inner));
}

inline VF quick_gelu(VF x) { return x / (VF::broadcast(1.0f) + exp(x * VF::broadcast(-1.702f))); }

inline VF relu(VF x) { return max(VF::zero(), x); }

inline VF relu2(VF x) {
  const VF y = relu(x);
  return y * y;
}

// One float, with the bits a lane of the vector function would have.
#define ES_SCALAR(name) \
  inline float name##f_(float x) { return first_lane(name(VF::broadcast(x))); }
ES_SCALAR(exp)
ES_SCALAR(log)
ES_SCALAR(sigmoid)
ES_SCALAR(tanh)
ES_SCALAR(erf)
ES_SCALAR(silu)
ES_SCALAR(gelu)
ES_SCALAR(gelu_tanh)
ES_SCALAR(quick_gelu)
ES_SCALAR(relu)
ES_SCALAR(relu2)
#undef ES_SCALAR

// y[i] = f(x[i]) for i in [0, n); y may be x.
template <class F>
inline void map(const float* x, float* y, int64_t n, F&& f) {
  int64_t i = 0;
  for (; i + VF::kLanes <= n; i += VF::kLanes) f(VF::load(x + i)).store(y + i);
  if (i < n) f(VF::load(x + i, static_cast<int>(n - i))).store(y + i, static_cast<int>(n - i));
}

}  // namespace es
