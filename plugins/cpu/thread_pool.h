// Persistent worker threads that share out the tasks of one kernel call at a time.
#pragma once
#include <immintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace es {

// A word one thread can sleep on until another changes it (Linux futex).
class Signal {
 public:
  uint32_t value() const { return word_.load(std::memory_order_acquire); }
  void wait(uint32_t seen) { syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0); }
  void raise() {
    word_.fetch_add(1, std::memory_order_seq_cst);
    syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }

 private:
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  std::atomic<uint32_t> word_{0};
};

// Waits until `ready()`: pauses at first, then offers the core to others, then returns false so the caller may sleep.
template <class Ready>
bool spin_until(Ready&& ready) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kPause = std::chrono::microseconds(20), kGiveUp = std::chrono::microseconds(100);
  for (int i = 0; i < 64; ++i) {
    if (ready()) return true;
    _mm_pause();
  }
  const auto start = Clock::now();
  for (;;) {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      _mm_pause();
    }
    const auto spent = Clock::now() - start;
    if (spent > kGiveUp) return ready();
    if (spent > kPause) std::this_thread::yield();
  }
}

// `run(tasks, f)` calls f(task, worker) once for each task in [0, tasks), on any of the threads, and returns when all
// have returned. The calling thread is worker 0. Tasks are claimed one by one, in ascending order, so uneven tasks
// balance out; put long ones first. A worker that is slow to wake (asleep, or its core is taken by another process)
// is never waited for unless it has claimed a task.
//
// One run at a time: not from two threads, not from inside a task. f must not throw. After fork() the child's pool has
// only its calling thread, and still works.
class ThreadPool {
 public:
  explicit ThreadPool(int threads)
      : threads_(std::max(1, threads)), owner_(getpid()), workers_(new std::vector<std::thread>) {
    workers_->reserve(threads_ - 1);
    try {
      for (int worker = 1; worker < threads_; ++worker) workers_->emplace_back([this, worker] { serve(worker); });
    } catch (...) {  // the system gives no more threads
      join();
      throw;
    }
  }

  ~ThreadPool() {
    if (getpid() != owner_) {  // a fork's child: the threads do not exist here, and joining them would never end
      workers_.release();
      return;
    }
    join();
  }

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  template <class F>
  void run(int64_t tasks, F&& f) {
    if (tasks <= 1 || threads_ == 1) {
      for (int64_t task = 0; task < tasks; ++task) f(task, 0);
      return;
    }
    using Function = std::remove_reference_t<F>;
    start([](void* context, int64_t task, int worker) { (*static_cast<Function*>(context))(task, worker); },
          const_cast<void*>(static_cast<const void*>(&f)), tasks);
    finish(tasks);
  }

  // f(first, last, worker) over ranges of at least `grain` items (the last may be shorter) that cover [0, items).
  // Where the ranges begin depends on the number of threads: f's result for an item must not depend on its range.
  template <class F>
  void run_ranges(int64_t items, int64_t grain, F&& f) {
    const int64_t even = (items + 4 * threads_ - 1) / (4 * threads_);
    const int64_t size = std::max<int64_t>({1, threads_ == 1 ? items : even, grain});
    run((items + size - 1) / size,
        [&](int64_t task, int worker) { f(task * size, std::min(items, (task + 1) * size), worker); });
  }

 private:
  void join() {
    stop_.store(true, std::memory_order_seq_cst);
    wake_.raise();
    for (auto& worker : *workers_) worker.join();
  }

  using Call = void (*)(void* context, int64_t task, int worker);
  static constexpr uint64_t kClosed = 0xffffffff;

  // state_ holds the run's number in its high half and the next unclaimed task in its low half. Between runs the low
  // half is kClosed, so that a latecomer's compare-and-swap can only succeed while the job it read is the current one.
  void start(Call call, void* context, int64_t tasks) {
    call_.store(call, std::memory_order_release);
    context_.store(context, std::memory_order_release);
    tasks_.store(tasks, std::memory_order_release);
    finished_.store(0, std::memory_order_relaxed);
    state_.store(uint64_t{++run_} << 32, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) wake_.raise();
  }

  void finish(int64_t tasks) {
    work(run_, 0);
    const auto done = [&] { return finished_.load(std::memory_order_seq_cst) == tasks; };
    while (!spin_until(done)) {
      const uint32_t seen = all_done_.value();
      caller_sleeps_.store(true, std::memory_order_seq_cst);
      if (!done()) all_done_.wait(seen);
      caller_sleeps_.store(false, std::memory_order_relaxed);
    }
    state_.store(uint64_t{run_} << 32 | kClosed, std::memory_order_release);
  }

  // Claims and does tasks of run `number` until none is left.
  void work(uint32_t number, int worker) {
    int64_t finished = 0;
    uint64_t state = state_.load(std::memory_order_acquire);
    while (state >> 32 == number) {
      const Call call = call_.load(std::memory_order_acquire);
      void* const context = context_.load(std::memory_order_acquire);
      const int64_t task = static_cast<int64_t>(state & kClosed);
      if (task >= tasks_.load(std::memory_order_acquire)) break;
      if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) continue;
      call(context, task, worker);
      ++finished;
      state = state_.load(std::memory_order_acquire);
    }
    if (finished == 0) return;
    finished_.fetch_add(finished, std::memory_order_seq_cst);
    if (worker != 0 && caller_sleeps_.load(std::memory_order_seq_cst)) all_done_.raise();
  }

  void serve(int worker) {
    uint32_t seen = 0;
    const auto called = [&] {
      return state_.load(std::memory_order_seq_cst) >> 32 != seen || stop_.load(std::memory_order_seq_cst);
    };
    while (!stop_.load(std::memory_order_relaxed)) {
      if (!spin_until(called)) {
        const uint32_t word = wake_.value();
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        if (!called()) wake_.wait(word);
        sleepers_.fetch_sub(1, std::memory_order_seq_cst);
        continue;
      }
      seen = static_cast<uint32_t>(state_.load(std::memory_order_acquire) >> 32);
      work(seen, worker);
    }
  }

  const int threads_;
  const pid_t owner_;
  uint32_t run_ = 0;
  std::unique_ptr<std::vector<std::thread>> workers_;
  alignas(64) std::atomic<uint64_t> state_{kClosed};
  std::atomic<Call> call_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<int64_t> tasks_{0};
  alignas(64) std::atomic<int64_t> finished_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false}, caller_sleeps_{false};
  Signal wake_, all_done_;
};

}  // namespace es
