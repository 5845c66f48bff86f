// Activation functions that a matrix kernel applies to its outputs before it stores them.
#pragma once
#include "cpu/simd.h"

namespace es {

struct Identity {
  static VF apply(VF x) { return x; }
};
struct Gelu {
  static VF apply(VF x) { return gelu(x); }
};
struct GeluTanh {
  static VF apply(VF x) { return gelu_tanh(x); }
};
struct Silu {
  static VF apply(VF x) { return silu(x); }
};
struct Relu {
  static VF apply(VF x) { return relu(x); }
};
struct Relu2 {
  static VF apply(VF x) { return relu2(x); }
};
struct QuickGelu {
  static VF apply(VF x) { return quick_gelu(x); }
};
struct Tanh {
  static VF apply(VF x) { return tanh(x); }
};
struct Sigmoid {
  static VF apply(VF x) { return sigmoid(x); }
};

}  // namespace es
