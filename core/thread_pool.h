#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace triax {

/// The compute threads of one rank: the caller plus size() - 1 workers. Between jobs a worker looks for the
/// next one for `patience`, offering its core to other threads, and then sleeps: the kernels of a step follow
/// each other within microseconds, and to wake a thread takes up to a hundred. Longer it must not look,
/// because ranks that share a machine share its cores (spinning OpenMP teams of several ranks starve each
/// other).
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
  // Written by run() before it counts job_, read by workers after they have seen that.
  const std::function<void(int64_t)>* body_ = nullptr;
  int64_t tasks_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<uint32_t> job_ = 0;  // counts jobs: what workers wait on
  std::atomic<int64_t> next_ = 0;  // next task to take
  std::atomic<int> active_ = 0;    // workers that have not finished this job: what run() waits on
  std::mutex mutex_;               // of error_
  std::exception_ptr error_;
};

}  // namespace triax
