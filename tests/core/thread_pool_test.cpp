#include "core/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace triax {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (const int size : {1, 2, 5}) {
    ThreadPool pool(size);
    EXPECT_EQ(pool.size(), size);
    for (const int64_t tasks : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
      pool.run(tasks, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
      for (const auto& r : runs) EXPECT_EQ(r.load(), 1);
    }
  }
}

TEST(ThreadPool, PiecesDoNotDependOnTheNumberOfThreads) {
  const auto pieces = [](int size) {
    ThreadPool pool(size);
    std::vector<int64_t> ends(4, -1);
    pool.parallel_for(10, 3, [&](int64_t begin, int64_t end) { ends[static_cast<size_t>(begin / 3)] = end; });
    return ends;
  };
  EXPECT_EQ(pieces(1), (std::vector<int64_t>{3, 6, 9, 10}));
  EXPECT_EQ(pieces(3), pieces(1));
}

TEST(ThreadPool, HandsOnAnExceptionAndStaysUsable) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.run(100,
                        [](int64_t i) {
                          if (i == 7) throw std::runtime_error("seven");
                        }),
               std::runtime_error);
  std::atomic<int> runs{0};
  pool.run(10, [&](int64_t) { ++runs; });
  EXPECT_EQ(runs.load(), 10);
}

TEST(ThreadPool, ManySmallJobs) {
  ThreadPool pool(2);
  std::atomic<int64_t> sum{0};
  for (int job = 0; job < 2000; ++job) pool.run(3, [&](int64_t i) { sum += i; });
  EXPECT_EQ(sum.load(), 6000);
}

}  // namespace
}  // namespace triax
