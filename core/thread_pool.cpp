#include "core/thread_pool.h"

#include <algorithm>
#include <chrono>

#include "core/futex.h"

namespace triax {

namespace {

constexpr auto patience = std::chrono::microseconds(200);

/// Returns when `value` is no longer `old`; whoever changes it must futex_wake_all().
template <class T>
void wait_for_change(const std::atomic<T>& value, T old) {
  const auto end = std::chrono::steady_clock::now() + patience;
  do {
    for (int i = 0; i < 64; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < end);
  while (value.load(std::memory_order_acquire) == old) futex_wait(value, old, FutexScope::process);
}

}  // namespace

ThreadPool::ThreadPool(int size) {
  for (int i = 1; i < size; ++i) workers_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  ++job_;
  futex_wake_all(job_, FutexScope::process);
  for (auto& w : workers_) w.join();
}

void ThreadPool::take_tasks() {
  for (int64_t mine; (mine = next_.fetch_add(1, std::memory_order_relaxed)) < tasks_;) {
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
  for (uint32_t seen = 0;; ++seen) {
    wait_for_change(job_, seen);
    if (stop_) return;
    take_tasks();
    if (active_.fetch_sub(1, std::memory_order_acq_rel) == 1) futex_wake_all(active_, FutexScope::process);
  }
}

void ThreadPool::run(int64_t tasks, const std::function<void(int64_t)>& body) {
  if (tasks <= 0) return;
  if (workers_.empty() || tasks == 1) {
    for (int64_t i = 0; i < tasks; ++i) body(i);
    return;
  }
  body_ = &body;
  tasks_ = tasks;
  error_ = nullptr;
  next_.store(0, std::memory_order_relaxed);
  active_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  job_.fetch_add(1, std::memory_order_release);
  futex_wake_all(job_, FutexScope::process);
  take_tasks();
  for (int left; (left = active_.load(std::memory_order_acquire)) != 0;) wait_for_change(active_, left);
  body_ = nullptr;
  if (error_) std::rethrow_exception(error_);
}

void ThreadPool::parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  run((n + grain - 1) / grain, [&](int64_t i) { body(i * grain, std::min(n, (i + 1) * grain)); });
}

}  // namespace triax
