// Causal attention of a step's queries over the paged cache: prefill chunks and decodes in one call.
#pragma once
#include <algorithm>
#include <cstdint>

#include "attention/cpu/kv_cache.h"
#include "attention/cpu/row_tile.h"
#include "cpu/tensor.h"
#include "cpu/thread_pool.h"

namespace es {

// H query heads over Hk key-value heads; query head h reads key-value head h / (H / Hk). row_tile.h defines the
// arithmetic; here the work is only shared out: (tile of a sequence's queries, key-value head) pairs, the longest
// first. Where those are too few to occupy the threads, decodes are cut further, at the splits of their contexts.
template <class E, int H, int Hk, int D, int Dv, int BlockSize>
struct PagedAttention {
  static_assert(H % Hk == 0, "the key-value heads divide the query heads");
  static constexpr int kGroup = H / Hk;
  using Cache = KvCache<E, Hk, D, Dv, BlockSize>;
  using Tile = RowTile<E, kGroup, Hk, D, Dv, BlockSize>;
  using State = RowState<Dv>;
  static constexpr int64_t block_bytes = Cache::block_bytes;

  // Writes the step's keys [T, Hk, D] and values [T, Hk, Dv] to the cache, then attends: q [T, H, D] to
  // out [T, H, Dv]. `scratch` holds scratch_floats() floats.
  static void run(ThreadPool& pool, Heads q, Heads k, Heads v, MutHeads out, KvLayer layer, const AttentionStep& step,
                  const AttentionOptions& options, float* scratch) {
    Cache::write(pool, k, v, layer, step);
    const Call call{q, out, layer, step, options, Scratch(scratch, pool.threads())};
    const int jobs = call.list_jobs();
    const int split_jobs = jobs * Hk < kScarce * pool.threads() ? call.decodes_first(jobs) : 0;
    call.attend_splits(pool, split_jobs);
    pool.run(int64_t{jobs - split_jobs} * Hk, [&](int64_t task, int worker) {
      call.attend_whole(split_jobs + static_cast<int>(task / Hk), static_cast<int>(task % Hk), worker);
    });
  }

  static int64_t scratch_floats(int threads, int max_num_tokens) {
    const int64_t states = int64_t{threads} * (kSlots + kScarce) * kGroup;
    return threads * floats<Tile>(1) + floats<State>(states) + floats<Job>(max_num_tokens);
  }

 private:
  static constexpr int kScarce = 4;  // fewer tasks than this a thread may leave threads idle
  static constexpr int kSlots = 16;  // splits a thread that are in flight at once

  // Consecutive tokens of one sequence.
  struct Job {
    int32_t sequence, token, count;
  };

  template <class T>
  static constexpr int64_t floats(int64_t count) {
    return (count * sizeof(T) + sizeof(float) - 1) / sizeof(float);
  }

  struct Scratch {
    Scratch(float* scratch, int threads)
        : tiles(reinterpret_cast<Tile*>(scratch)),
          partial(reinterpret_cast<State*>(scratch + threads * floats<Tile>(1))),
          total(partial + int64_t{threads} * kSlots * kGroup),
          jobs(reinterpret_cast<Job*>(total + int64_t{threads} * kScarce * kGroup)) {}
    Tile* tiles;     // one a worker
    State* partial;  // [slot, kGroup] splits of decodes
    State* total;    // [job * Hk + head, kGroup] decodes whose splits are being merged
    Job* jobs;
  };

  struct Call {
    Heads q;
    MutHeads out;
    KvLayer layer;
    const AttentionStep& step;
    AttentionOptions options;
    Scratch scratch;

    int position(const Job& job) const { return step.position(job.sequence, job.token); }
    int first_split(const Job& job) const { return options.first_visible(position(job)) / Tile::kSplit; }
    int end_split(const Job& job) const { return (position(job) + job.count - 1) / Tile::kSplit + 1; }
    const float* sink(int h) const { return options.sinks ? options.sinks + h : nullptr; }

    // The step's jobs, those with the most work first.
    int list_jobs() const {
      int n = 0;
      for (int s = 0; s < step.num_seqs; ++s)
        for (int t = step.query_start[s]; t < step.query_start[s + 1]; t += Tile::kTokens)
          scratch.jobs[n++] = {s, t, std::min(Tile::kTokens, step.query_start[s + 1] - t)};
      const auto work = [&](const Job& job) {
        return int64_t{job.count} * (position(job) + job.count - options.first_visible(position(job)));
      };
      std::sort(scratch.jobs, scratch.jobs + n, [&](const Job& a, const Job& b) {
        const int64_t x = work(a), y = work(b);
        return x != y ? x > y : a.token < b.token;
      });
      return n;
    }

    // Moves jobs worth cutting, those of one token and several splits, to the front; how many they are.
    int decodes_first(int jobs) const {
      const auto worth_cutting = [&](const Job& job) {
        return job.count == 1 && end_split(job) - first_split(job) > 1;
      };
      return static_cast<int>(std::partition(scratch.jobs, scratch.jobs + jobs, worth_cutting) - scratch.jobs);
    }

    void attend_whole(int index, int head, int worker) const {
      const Job job = scratch.jobs[index];
      Tile& tile = scratch.tiles[worker];
      tile.load(q, job.token, job.count, head, position(job), options.scale);
      for (int r = 0; r < tile.rows; ++r) tile.total[r].clear();
      for (int split = first_split(job); split < end_split(job); ++split) {
        tile.attend(split, layer, step, job.sequence, head, options);
        for (int r = 0; r < tile.rows; ++r) tile.total[r].merge(tile.state[r]);
      }
      for (int r = 0; r < tile.rows; ++r) {
        const int h = head * kGroup + r % kGroup;
        tile.total[r].finish(sink(h), out.at(job.token + r / kGroup, h));
      }
    }

    // Attends for the first `count` jobs, each of one token: rounds of at most `slots` splits over all threads, each
    // followed by merging its splits, in order, into the totals.
    void attend_splits(ThreadPool& pool, int count) const {
      if (count == 0) return;
      for (int i = 0; i < count * Hk * kGroup; ++i) scratch.total[i].clear();
      const int slots = kSlots * pool.threads();
      Cursor cursor{*this, 0, first_split(scratch.jobs[0])};
      while (cursor.pair < count * Hk) {
        Cursor end = cursor;
        int used = 0;
        for (; used < slots && end.pair < count * Hk; ++used) end.advance(count);
        pool.run(used, [&](int64_t slot, int worker) {
          Cursor at = cursor;
          for (int64_t i = 0; i < slot; ++i) at.advance(count);
          attend_one(at.pair / Hk, at.pair % Hk, at.split, worker, scratch.partial + slot * kGroup);
        });
        for (int slot = 0; slot < used; ++slot, cursor.advance(count)) {
          State* total = scratch.total + cursor.pair * kGroup;
          for (int r = 0; r < kGroup; ++r) total[r].merge(scratch.partial[slot * kGroup + r]);
        }
      }
      for (int pair = 0; pair < count * Hk; ++pair)
        for (int r = 0; r < kGroup; ++r) {
          const int h = pair % Hk * kGroup + r;
          scratch.total[pair * kGroup + r].finish(sink(h), out.at(scratch.jobs[pair / Hk].token, h));
        }
    }

    void attend_one(int index, int head, int split, int worker, State* result) const {
      const Job job = scratch.jobs[index];
      Tile& tile = scratch.tiles[worker];
      tile.load(q, job.token, 1, head, position(job), options.scale);
      tile.attend(split, layer, step, job.sequence, head, options);
      std::copy_n(tile.state, kGroup, result);
    }
  };

  // Walks the splits of (job, key-value head) pairs in order.
  struct Cursor {
    const Call& call;
    int pair, split;

    void advance(int count) {
      if (++split < call.end_split(call.scratch.jobs[pair / Hk])) return;
      if (++pair < count * Hk) split = call.first_split(call.scratch.jobs[pair / Hk]);
    }
  };
};

}  // namespace es
