#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace triax {

/// The compute threads of one rank: the caller plus size() - 1 workers that sleep between jobs. Ranks that
/// share a machine share its cores, so waiting must cost nothing (spinning OpenMP teams of several ranks
/// starve each other).
class ThreadPool {
 public:
  explicit ThreadPool(int size);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(i) once for each i in [0, tasks), on all threads, and returns when all are done. Which thread
  /// takes which task is not fixed, so a task's result must depend on i alone. Not reentrant. An exception of
  /// a task is rethrown here after the others have finished.
  void run(int64_t tasks, const std::function<void(int64_t)>& body);

  /// Splits [0, n) into pieces of `grain` (the last one shorter) and calls body(begin, end) for each. The
  /// pieces depend on n and grain alone, never on the number of threads.
  void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

 private:
  void work();
  void take_tasks();

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable start_, done_;
  const std::function<void(int64_t)>* body_ = nullptr;
  int64_t tasks_ = 0;
  int64_t next_ = 0;  // next task to take
  int active_ = 0;    // workers that have not finished this job
  uint64_t job_ = 0;  // counts jobs, so that a worker wakes once for each
  bool stop_ = false;
  std::exception_ptr error_;
};

}  // namespace triax
