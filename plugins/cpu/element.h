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
};

struct Bf16 {
  using Type = uint16_t;
  static VF load(const Type* p) { return VF::load_bf16(p); }
  static VF load(const Type* p, int n) { return VF::load_bf16(p, n); }
  static void store(VF x, Type* p) { x.store_bf16(p); }
  static void store(VF x, Type* p, int n) { x.store_bf16(p, n); }
};

// Elements that stand for a multiple of some scale. The scale of a row is best its largest magnitude / kLargest; a
// loaded element is 1 / kUnit of the multiple, so that what it stands for is load() * (scale * kUnit).
struct Int8 {
  using Type = int8_t;
  static constexpr float kLargest = 127, kUnit = 1;
  static VF load(const Type* p) { return VF::load_int8(p); }
  static VF load(const Type* p, int n) { return VF::load_int8(p, n); }
  static void store(VF x, Type* p) { x.store_int8(p); }
  static void store(VF x, Type* p, int n) { x.store_int8(p, n); }
};

struct Fp8 {
  using Type = uint8_t;
  static constexpr float kLargest = 448, kUnit = 256;
  static VF load(const Type* p) { return VF::load_fp8(p); }
  static VF load(const Type* p, int n) { return VF::load_fp8(p, n); }
  static void store(VF x, Type* p) { x.store_fp8(p); }
  static void store(VF x, Type* p, int n) { x.store_fp8(p, n); }
};

}  // namespace es
