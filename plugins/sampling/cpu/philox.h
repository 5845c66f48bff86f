// Philox4x32-10, a counter-based random generator (Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as
// 1, 2, 3", SC 2011): any number of a stream can be computed by itself, from its key and index.
#pragma once
#include <array>
#include <cstdint>

namespace es {

using PhiloxBlock = std::array<uint32_t, 4>;

inline PhiloxBlock philox4x32(PhiloxBlock counter, uint64_t key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = kMultiplier0 * counter[0], b = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(a)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

// Number `index` of stream `seed`: uniform over the multiples of 2^-53 in [0, 1).
inline double philox_uniform(uint64_t seed, uint64_t index) {
  const PhiloxBlock x = philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0}, seed);
  return static_cast<double>((uint64_t{x[0]} << 32 | x[1]) >> 11) * 0x1p-53;
}

}  // namespace es
