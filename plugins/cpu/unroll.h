// Loops unrolled by the compiler's front end, so that small arrays of vectors stay in registers at any -O level.
#pragma once
#include <utility>

#define ES_ALWAYS_INLINE __attribute__((always_inline))

namespace es {

namespace detail {
template <class F, int... I>
ES_ALWAYS_INLINE inline void unroll(F&& f, std::integer_sequence<int, I...>) {
  (f(std::integral_constant<int, I>{}), ...);
}
}  // namespace detail

// f(0), f(1), ... f(N - 1); the argument is a constant expression.
template <int N, class F>
ES_ALWAYS_INLINE inline void unroll(F&& f) {
  detail::unroll(static_cast<F&&>(f), std::make_integer_sequence<int, N>{});
}

}  // namespace es
