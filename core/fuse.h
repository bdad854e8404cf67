#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace triax {

/// Runs `action` on a thread of its own when `time` has passed, unless it is destroyed before: the way out of
/// what may never return.
class Fuse {
 public:
  Fuse(std::chrono::milliseconds time, std::function<void()> action);
  /// Waits for the action where it has begun.
  ~Fuse();
  Fuse(const Fuse&) = delete;
  Fuse& operator=(const Fuse&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool out_ = false;
  std::thread thread_;
};

}  // namespace triax
