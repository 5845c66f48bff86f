// Which rows go to which expert: pairs of a token and one of its experts, sorted by expert, those of one expert by
// token, without gaps.
#pragma once
#include <algorithm>
#include <cstdint>

#include "cpu/tiles.h"

namespace es {

// Rows of one expert that share a pass over its weights: pairs [first, first + rows).
struct ExpertBlock {
  int32_t expert, first, rows;
};

// `Active` of `Experts` for each token. An index that no expert has makes no pair.
template <int Experts, int Active>
class Routing {
 public:
  static constexpr int64_t bytes(int64_t tokens) {
    return round_up(4 * (2 * tokens * Active + Experts + 1), 64) +
           round_up(static_cast<int64_t>(sizeof(ExpertBlock)) * max_blocks(tokens), 64);
  }

  // indices: [tokens, Active], rows `stride` apart. `memory` holds bytes(tokens) and is 64-byte aligned.
  Routing(const int32_t* indices, int64_t stride, int64_t tokens, uint8_t* memory)
      : token_(reinterpret_cast<int32_t*>(memory)),
        pair_(token_ + tokens * Active),
        blocks_(reinterpret_cast<ExpertBlock*>(memory + round_up(4 * (2 * tokens * Active + Experts + 1), 64))) {
    int32_t* const start = pair_ + tokens * Active;
    std::fill(start, start + Experts + 1, 0);
    const auto for_pairs = [&](auto&& f) {
      for (int64_t t = 0; t < tokens; t++)
        for (int64_t j = 0; j < Active; j++) f(t, t * Active + j, indices[t * stride + j]);
    };
    for_pairs([&](int64_t, int64_t, int32_t e) { start[exists(e) ? e + 1 : 0] += exists(e); });
    for (int e = 0; e < Experts; e++) {
      // One token's rows are one row: no expert has more of it to share.
      add_blocks(e, start[e], start[e + 1], tokens == 1 ? 1 : kRowBlock);
      start[e + 1] += start[e];
    }
    pairs_ = start[Experts];
    for_pairs([&](int64_t t, int64_t at, int32_t e) {
      pair_[at] = exists(e) ? start[e]++ : -1;
      if (exists(e)) token_[pair_[at]] = static_cast<int32_t>(t);
    });
    std::sort(blocks_, blocks_ + num_blocks_, [](const ExpertBlock& a, const ExpertBlock& b) {
      return a.rows != b.rows ? a.rows > b.rows : a.first < b.first;  // long tasks first
    });
  }

  int64_t pairs() const { return pairs_; }
  int32_t token(int64_t pair) const { return token_[pair]; }
  // Of a token's j-th expert; -1 where there is none.
  int32_t pair(int64_t token, int64_t j) const { return pair_[token * Active + j]; }

  // Spreads blocks times panels over the pool: f(block, panel). See for_panels().
  template <class F>
  void for_panels(ThreadPool& pool, int64_t panels, int64_t panel_bytes, F&& f) const {
    const int64_t fair = panels * num_blocks_ / (8 * pool.threads());
    const int64_t per_task = std::max<int64_t>(1, std::min(fair, ceil_div(256 << 10, panel_bytes)));
    const int64_t tasks = ceil_div(panels, per_task);
    pool.run(num_blocks_ * tasks, [&](int64_t task, int) {
      const int64_t begin = task % tasks * per_task;
      for (int64_t p = begin; p < std::min(begin + per_task, panels); p++) f(blocks_[task / tasks], p);
    });
  }

 private:
  int32_t *token_, *pair_;
  ExpertBlock* blocks_;
  int64_t pairs_ = 0, num_blocks_ = 0;

  static constexpr int64_t max_blocks(int64_t tokens) { return Experts + tokens * Active; }
  static bool exists(int32_t expert) { return expert >= 0 && expert < Experts; }

  // Even blocks of at most `most` rows.
  void add_blocks(int32_t expert, int64_t first, int64_t rows, int64_t most) {
    const int64_t blocks = ceil_div(rows, most);
    for (int64_t b = 0; b < blocks; b++) {
      const int64_t from = rows * b / blocks, to = rows * (b + 1) / blocks;
      blocks_[num_blocks_++] = {expert, static_cast<int32_t>(first + from), static_cast<int32_t>(to - from)};
    }
  }
};

}  // namespace es
