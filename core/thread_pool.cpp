#include "core/thread_pool.h"

#include <algorithm>
#include <exception>

namespace triax {

ThreadPool::ThreadPool(int size) {
  for (int i = 1; i < size; ++i) workers_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (auto& w : workers_) w.join();
}

void ThreadPool::take_tasks() {
  for (;;) {
    int64_t mine;
    {
      std::lock_guard lock(mutex_);
      if (next_ >= tasks_) return;
      mine = next_++;
    }
    try {
      (*body_)(mine);
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      next_ = tasks_;
    }
  }
}

void ThreadPool::work() {
  uint64_t seen = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return stop_ || job_ != seen; });
      if (stop_) return;
      seen = job_;
    }
    take_tasks();
    {
      std::lock_guard lock(mutex_);
      if (--active_ == 0) done_.notify_one();
    }
  }
}

void ThreadPool::run(int64_t tasks, const std::function<void(int64_t)>& body) {
  if (tasks <= 0) return;
  if (workers_.empty() || tasks == 1) {
    for (int64_t i = 0; i < tasks; ++i) body(i);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    body_ = &body;
    tasks_ = tasks;
    next_ = 0;
    active_ = static_cast<int>(workers_.size());
    error_ = nullptr;
    ++job_;
  }
  start_.notify_all();
  take_tasks();
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return active_ == 0; });
  body_ = nullptr;
  if (error_) std::rethrow_exception(error_);
}

void ThreadPool::parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  run((n + grain - 1) / grain, [&](int64_t i) { body(i * grain, std::min(n, (i + 1) * grain)); });
}

}  // namespace triax
