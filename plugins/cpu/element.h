// The types in which tables and caches store their elements; arithmetic is float32 always.
#pragma once
#include "cpu/vf.h"

namespace es {

struct Fp32 {
  using Type = float;
  static VF load(const Type* p) { return VF::load(p); }
  static VF load(const Type* p, int n) { return VF::load(p, n); }
  static void store(VF x, Type* p) { x.store(p); }
  static void store(VF x, Type* p, int n) { x.store(p, n); }
  static float widen(Type x) { return x; }
  static Type narrow(float x) { return x; }
};

struct Bf16 {
  using Type = uint16_t;
  static VF load(const Type* p) { return VF::load_bf16(p); }
  static VF load(const Type* p, int n) { return VF::load_bf16(p, n); }
  static void store(VF x, Type* p) { x.store_bf16(p); }
  static void store(VF x, Type* p, int n) { x.store_bf16(p, n); }
  static float widen(Type x) { return bf16_to_float(x); }
  static Type narrow(float x) { return float_to_bf16(x); }
};

}  // namespace es
