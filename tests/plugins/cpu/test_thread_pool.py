"""The thread pool: every task once, whatever the threads do; sleeps when idle; survives fork."""

import ctypes
import os
import time

import pytest

DRIVER = """
#include "cpu/thread_pool.h"
#include <vector>
extern "C" {
es::ThreadPool* make(int threads) { return new es::ThreadPool(threads); }
void destroy(es::ThreadPool* pool) { delete pool; }

// `runs` runs of `tasks` tasks that take about `pauses` pauses; how often the counts came out wrong, plus how often a
// task saw a worker number out of range or in use by another.
int64_t count(es::ThreadPool* pool, int64_t runs, int64_t tasks, int pauses) {
  std::vector<int64_t> done(tasks);
  std::vector<std::atomic<int>> busy(pool->threads());
  std::atomic<int64_t> wrong{0};
  for (int64_t r = 1; r <= runs; ++r) {
    pool->run(tasks, [&](int64_t task, int worker) {
      if (worker < 0 || worker >= pool->threads() || busy[worker].exchange(1)) ++wrong;
      for (int i = 0; i < pauses; ++i) _mm_pause();
      ++done[task];
      busy[worker] = 0;
    });
    for (const int64_t n : done) wrong += n != r;
  }
  return wrong;
}

// Whether run_ranges covers [0, items) once, in ranges of at least `grain` but for the last.
int64_t ranges(es::ThreadPool* pool, int64_t items, int64_t grain) {
  std::vector<std::atomic<int>> covered(items + 1);
  std::atomic<int64_t> wrong{0};
  pool->run_ranges(items, grain, [&](int64_t first, int64_t last, int) {
    wrong += last - first < grain && last != items;
    for (int64_t i = first; i < last; ++i) ++covered[i];
  });
  for (int64_t i = 0; i < items; ++i) wrong += covered[i] != 1;
  return wrong;
}
}
"""


@pytest.fixture(scope="module")
def library(compile_kernel):
    library = compile_kernel(DRIVER)
    library.make.restype = ctypes.c_void_p
    library.count.restype = library.ranges.restype = ctypes.c_int64
    return library


@pytest.fixture(params=[1, 2, 3, 7])
def pool(library, request):
    made = ctypes.c_void_p(library.make(request.param))
    yield made
    library.destroy(made)


def count(library, pool, runs, tasks, pauses):
    return library.count(pool, ctypes.c_int64(runs), ctypes.c_int64(tasks), pauses)


@pytest.mark.parametrize(
    ("runs", "tasks", "pauses"), [(3000, 1, 0), (3000, 2, 0), (2000, 5, 1), (200, 100, 3), (5, 0, 0)]
)
def test_every_task_runs_once(library, pool, runs, tasks, pauses):
    assert count(library, pool, runs, tasks, pauses) == 0


def test_works_again_after_its_workers_went_to_sleep(library, pool):
    for _ in range(10):
        time.sleep(0.005)
        assert count(library, pool, 3, 8, 50) == 0


@pytest.mark.parametrize(("items", "grain"), [(0, 1), (1, 1), (7, 3), (1000, 1), (1000, 64), (10, 1000)])
def test_ranges_cover_the_items(library, pool, items, grain):
    assert library.ranges(pool, ctypes.c_int64(items), ctypes.c_int64(grain)) == 0


def test_idle_pool_uses_no_processor_time(library):
    pool = ctypes.c_void_p(library.make(4))
    count(library, pool, 10, 8, 10)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.03
    library.destroy(pool)


def test_a_forked_child_can_run_and_leave(library):
    pool = ctypes.c_void_p(library.make(3))
    assert count(library, pool, 10, 8, 10) == 0
    child = os.fork()
    if child == 0:
        wrong = count(library, pool, 20, 8, 10)
        library.destroy(pool)
        os._exit(int(wrong != 0))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert count(library, pool, 10, 8, 10) == 0
    library.destroy(pool)
