// int8, int4, bf16 and fp8 panels on AMX: up to two tiles of 16 rows times the two halves of a panel. A row's sums do
// not see the other rows of its tile. Where inputs are of two bytes, the second tile holds the low bytes of the first
// one's rows.
#pragma once
#include "cpu/amx.h"
#include "linear/cpu/fp8_avx512.h"
#include "linear/cpu/integer_avx512.h"

namespace es::amx {

// Up to so many rows integers are multiplied faster in vectors, whose sums are the same.
template <class W>
constexpr int64_t kFewRows = W::kBits == 4 ? 6 : 2;

// Tiles: 0-3 sums [rows 0, rows 1] x [half 0, half 1], 4-5 rows, 6-7 weights.
// `Depth`: bytes of a row, 64 or 32.
template <int Depth = 64>
class RowTiles {
 public:
  RowTiles() { enable(); }
  ~RowTiles() { release(); }
  RowTiles(const RowTiles&) = delete;
  RowTiles& operator=(const RowTiles&) = delete;

  // How many rows each tile has; also `rows`, at most 32, one tile after the other.
  ES_INLINE void fit(int64_t first, int64_t second) {
    if (first != first_ || second != second_) resize(first, second);
  }
  ES_INLINE void fit(int64_t rows) { fit(std::min<int64_t>(rows, 16), std::max<int64_t>(rows - 16, 0)); }
  // Sums begin at zero.
  ES_INLINE void begin() const {
    zero<0>();
    zero<1>();
    if (!second_) return;
    zero<2>();
    zero<3>();
  }
  // sums += rows at x, and those of the second tile `next` bytes on, times weights w0 and w1, 16 * Depth bytes each.
  template <bool Bf16>
  ES_INLINE void step(const uint8_t* x, int64_t next, int64_t stride, const uint8_t* w0, const uint8_t* w1) const {
    load<4>(x, stride);
    load<6>(w0, 64);
    load<7>(w1, 64);
    product<Bf16, 0, 4, 6>();
    product<Bf16, 1, 4, 7>();
    if (second_) {
      load<5>(x + next, stride);
      product<Bf16, 2, 5, 6>();
      product<Bf16, 3, 5, 7>();
    }
  }
  // Sums begin at what store_sums() stored.
  ES_INLINE void resume(const void* sums) const {
    const uint8_t* p = static_cast<const uint8_t*>(sums);
    load<0>(p, 128);
    load<1>(p + 64, 128);
    if (!second_) return;
    load<2>(p + 16 * 128, 128);
    load<3>(p + 16 * 128 + 64, 128);
  }
  // Sums to [rows][32] of 4 bytes, those of the second tile after 16 rows.
  ES_INLINE void store_sums(void* to) const {
    uint8_t* p = static_cast<uint8_t*>(to);
    store<0>(p, 128);
    store<1>(p + 64, 128);
    if (!second_) return;
    store<2>(p + 16 * 128, 128);
    store<3>(p + 16 * 128 + 64, 128);
  }

 private:
  int64_t first_ = 0, second_ = 0;

  void resize(int64_t first, int64_t second) {
    first_ = first, second_ = second;
    TileConfig config;
    const int counts[] = {static_cast<int>(first), static_cast<int>(second)};
    for (int t = 0; t < 4; t++) config.set(t, counts[t / 2], 64);
    for (int t = 0; t < 2; t++) config.set(4 + t, counts[t], Depth);
    for (int t = 6; t < 8; t++) config.set(t, Depth / 4, 64);
    configure(config);
  }
  template <bool Bf16, int C, int A, int B>
  ES_INLINE static void product() {
    if constexpr (Bf16)
      dot_bf16<C, A, B>();
    else
      dot_bytes<C, A, B>();
  }
};

// acc[rows][32] = x * panel of K = k, padded to 32; `x` are bf16 rows `stride` bytes apart.
ES_NOINLINE inline void bf16_panel(const uint8_t* panel, int64_t k, const uint8_t* x, int64_t stride, int64_t rows,
                                   float* acc) {
  const int64_t blocks = ceil_div(k, 32);
  RowTiles<> tiles;
  for (int64_t r = 0; r < rows; r += 32) {
    tiles.fit(std::min<int64_t>(32, rows - r));
    tiles.begin();
    for (int64_t b = 0; b < blocks; b++) {
      const uint8_t *w0 = panel + b * 1024, *w1 = w0 + blocks * 1024;
      for (int i = 0; i < 1024; i += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(w0 + 4096 + i), _MM_HINT_T0);
        _mm_prefetch(reinterpret_cast<const char*>(w1 + 4096 + i), _MM_HINT_T0);
      }
      tiles.step<true>(x + r * stride + 64 * b, 16 * stride, stride, w0, w1);
    }
    tiles.store_sums(acc + r * kPanel);
  }
}

struct Fp8Sums {
  // 256 k at a time are unpacked to tiles of bf16.
  template <class W>
  static void add(const uint8_t* panel, int64_t first, int64_t count, const Prepared<W>& x, int64_t row, int64_t rows,
                  float* sums) {
    alignas(64) uint8_t unpacked[avx512::kBlockK * 128];
    std::fill(sums, sums + rows * kPanel, 0.0f);
    RowTiles<> tiles;
    for (int64_t at = 0; at < count; at += 2 * avx512::kBlockK) {
      const int64_t blocks = ceil_div(std::min(2 * avx512::kBlockK, count - at), 32);
      avx512::unpack_fp8(panel + (first + at) * kPanel, 8 * blocks, unpacked);
      for (int64_t r = 0; r < rows; r += 32) {
        tiles.fit(std::min<int64_t>(32, rows - r));
        tiles.resume(sums + r * kPanel);
        for (int64_t b = 0; b < blocks; b++) {
          const uint8_t* w = unpacked + b * 1024;
          tiles.step<true>(x.row(row + r, first + at + 32 * b), 16 * x.stride, x.stride, w, w + blocks * 1024);
        }
        tiles.store_sums(sums + r * kPanel);
      }
    }
  }
};

// int4: a chunk of both halves to two tiles of unsigned bytes.
template <class W>
ES_INLINE void unpack_chunk(const uint8_t* w, uint8_t* out) {
  constexpr int64_t kBytes = W::kHalfChunkBytes;
  for (int h = 0; h < 2; h++)
    for (int i = 0; i < kBytes; i += 64) {
      const v512::Words both = v512::load_words(w + h * kBytes + i);
      v512::store_words(out + h * 2 * kBytes + i, v512::low_nibbles(both));
      v512::store_words(out + h * 2 * kBytes + kBytes + i, v512::high_nibbles(both));
    }
}

// A block of rows times group g, as store_sums() left it: rows `first` and on of the call's, `done` of them again.
struct Block {
  const int32_t* sums;
  const uint8_t* scales;
  int64_t g, first, done, rows;
};

// acc[rows][32] += the block, but for rows that were added before.
template <class W>
ES_INLINE void add_block(const Block& block, const Prepared<W>& x, int64_t row, float* acc) {
  const avx512::HalfScales<W> low(block.scales), high(block.scales + 2 * kHalf);
  for (int64_t r = block.done; r < block.rows; r++) {
    const int64_t at = row + block.first + r;
    const v512::Words correction = v512::broadcast_word(x.correction(at, block.g));
    const int32_t* from = block.sums + r * kPanel;
    v512::Words sum[2] = {v512::load_words(from), v512::load_words(from + kHalf)};
    if constexpr (Prepared<W>::kPlanes == 2)
      for (int h = 0; h < 2; h++)
        sum[h] = avx512::join_planes(sum[h], v512::load_words(from + 16 * kPanel + h * kHalf));
    float* to = acc + (block.first + r) * kPanel;
    low.add(v512::add(sum[0], correction), x, at, block.g, to);
    high.add(v512::add(sum[1], correction), x, at, block.g, to + kHalf);
  }
}

// acc[rows][32] = x * panel, for rows from `row` on. Tiles go through memory on their way to vectors, which cannot read
// what is still being stored: so a group is unpacked while the one before it is multiplied, and a block's sums are
// added while the next block is multiplied. Every block has as many rows, so the last one begins within the one before.
template <class W>
ES_NOINLINE void integer_panel(const uint8_t* panel, int64_t k, const Prepared<W>& x, int64_t row, int64_t rows,
                               float* acc) {
  constexpr int kPlanes = Prepared<W>::kPlanes;
  constexpr int64_t kTiles = W::kChunk * kPanel;  // bytes of a chunk in two tiles
  const int64_t next = kPlanes == 2 ? W::kChunk : 16 * x.stride;
  const int64_t at_once = std::min<int64_t>(rows, 32 / kPlanes);
  alignas(64) uint8_t unpacked[2][W::kBits == 4 ? W::kPadded * kPanel : 64];
  alignas(64) int32_t sums[2][32 * kPanel];
  const auto unpack = [&](const uint8_t* group, int64_t g) {
    if constexpr (W::kBits == 4)
      for (int64_t c = 0; c < W::chunks(k, g); c++)
        unpack_chunk<W>(group + c * W::kChunkBytes, unpacked[g % 2] + c * kTiles);
  };
  std::fill(acc, acc + rows * kPanel, 0.0f);
  RowTiles<W::kChunk> tiles;
  if constexpr (kPlanes == 2)
    tiles.fit(at_once, at_once);
  else
    tiles.fit(at_once);
  Block before{sums[0], panel, 0, 0, 0, 0};
  const uint8_t* group = panel;
  unpack(group, 0);
  for (int64_t g = 0; g < W::groups(k); g++) {
    const int64_t chunks = W::chunks(k, g), bytes = chunks * W::kChunkBytes + W::kScaleBytes;
    const uint8_t* weights = W::kBits == 4 ? unpacked[g % 2] : group;
    for (int64_t i = 0; i < bytes; i += 64) _mm_prefetch(reinterpret_cast<const char*>(group + 4096 + i), _MM_HINT_T0);
    if (g + 1 < W::groups(k)) unpack(group + bytes, g + 1);
    for (int64_t r = 0; r < rows; r += at_once) {
      int32_t* to = before.sums == sums[0] ? sums[1] : sums[0];
      const int64_t first = std::min(r, rows - at_once);
      tiles.begin();
      for (int64_t c = 0; c < chunks; c++) {
        const uint8_t *from = x.values(row + first, g) + kPlanes * W::kChunk * c, *w = weights + c * kTiles;
        tiles.template step<false>(from, next, x.stride, w, w + kTiles / 2);
      }
      tiles.store_sums(to);
      add_block(before, x, row, acc);
      before = {to, group + chunks * W::kChunkBytes, g, first, r - first, at_once};
    }
    group += bytes;
  }
  add_block(before, x, row, acc);
  if constexpr (W::kPerChannel) avx512::scale_channels(group, rows, acc);
}

}  // namespace es::amx
