// What every emitted engine stands on: memory, errors across the C interface, and checks of a step's arguments.
#pragma once
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>

#pragma GCC visibility push(default)
#include "cpu/abi.h"
#pragma GCC visibility pop

namespace es::engine {

inline thread_local char last_error[512];

// An error with a formatted message.
class Error : public std::exception {
 public:
  __attribute__((format(printf, 2, 3))) explicit Error(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text_, sizeof(text_), format, arguments);
    va_end(arguments);
  }
  const char* what() const noexcept override { return text_; }

 private:
  char text_[400];
};

// Runs f; no exception gets out of the C interface.
template <class F>
int guarded(F&& f) {
  try {
    f();
    return 0;
  } catch (const std::exception& error) {
    std::snprintf(last_error, sizeof(last_error), "%s", error.what());
  } catch (...) {
    std::snprintf(last_error, sizeof(last_error), "unknown failure in the engine");
  }
  return -1;
}

// Zeroed memory of which only the pages that are touched take room.
class Memory {
 public:
  explicit Memory(int64_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) throw Error("cannot reserve %lld bytes of memory", static_cast<long long>(bytes));
    data_ = static_cast<uint8_t*>(data);
    madvise(data, bytes, MADV_HUGEPAGE);
  }
  Memory(Memory&& other) noexcept : data_(other.data_), bytes_(other.bytes_) { other.data_ = nullptr; }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (data_) munmap(data_, bytes_);
  }
  uint8_t* data() const { return data_; }

 private:
  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Any of a position's bits in `position_flags` may be set beside the position itself.
struct Limits {
  int32_t max_num_tokens, max_batch_size, max_logits_rows, max_seq_len, vocab_size, block_size, num_groups,
      position_flags;
};

inline void require(bool holds, const char* what, int64_t value, int64_t limit) {
  if (!holds) {
    throw Error("%s: %lld is out of range (limit %lld)", what, static_cast<long long>(value),
                static_cast<long long>(limit));
  }
}

// Refuses a step whose arrays would make a kernel read or write outside its memory. `windows` and `num_blocks` have an
// entry a cache group; a window of 0 is full attention.
inline void check_step(const Limits& limits, const EsStep& s, const int32_t* windows, const int32_t* num_blocks) {
  require(s.num_tokens >= 1 && s.num_tokens <= limits.max_num_tokens, "num_tokens", s.num_tokens,
          limits.max_num_tokens);
  require(s.num_seqs >= 1 && s.num_seqs <= limits.max_batch_size, "num_seqs", s.num_seqs, limits.max_batch_size);
  require(s.num_rows >= 0 && s.num_rows <= limits.max_logits_rows, "num_rows", s.num_rows, limits.max_logits_rows);
  for (int32_t t = 0; t < s.num_tokens; ++t) {
    require(s.input_ids[t] >= 0 && s.input_ids[t] < limits.vocab_size, "input_ids", s.input_ids[t],
            limits.vocab_size - 1);
    const int32_t position = s.position_ids[t] & ~limits.position_flags;
    require(position >= 0 && position < limits.max_seq_len, "position_ids", position, limits.max_seq_len - 1);
  }
  for (int32_t r = 0; r < s.num_rows; ++r) {
    require(s.logits_rows[r] >= 0 && s.logits_rows[r] < s.num_tokens, "logits_rows", s.logits_rows[r],
            s.num_tokens - 1);
  }
  require(s.query_start[0] == 0, "query_start[0]", s.query_start[0], 0);
  require(s.query_start[s.num_seqs] == s.num_tokens, "query_start[S]", s.query_start[s.num_seqs], s.num_tokens);
  for (int32_t i = 0; i < s.num_seqs; ++i) {
    const int32_t queries = s.query_start[i + 1] - s.query_start[i], context = s.context_length[i];
    require(queries >= 1, "tokens of a sequence", queries, 1);
    require(context >= queries && context <= limits.max_seq_len, "context_length", context, limits.max_seq_len);
    const int32_t blocks = (context + limits.block_size - 1) / limits.block_size;
    for (int32_t g = 0; g < limits.num_groups; ++g) {
      require(blocks <= s.max_blocks, "blocks of a sequence", blocks, s.max_blocks);
      const int32_t* table = s.block_table + (static_cast<int64_t>(g) * s.num_seqs + i) * s.max_blocks;
      const int32_t seen_from = windows[g] ? context - queries - windows[g] + 1 : 0;
      for (int32_t b = seen_from > 0 ? seen_from / limits.block_size : 0; b < blocks; ++b)
        require(table[b] >= 0 && table[b] < num_blocks[g], "block_table", table[b], num_blocks[g] - 1);
    }
  }
}

// Linux grants a process the use of AMX tiles on request.
inline void request_amx() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) throw Error("the kernel refuses the use of AMX");
}

}  // namespace es::engine
