#include "core/fuse.h"

namespace triax {

Fuse::Fuse(std::chrono::milliseconds time, std::function<void()> action)
    : thread_([this, time, action = std::move(action)] {
        std::unique_lock lock(mutex_);
        if (changed_.wait_for(lock, time, [this] { return out_; })) return;
        lock.unlock();
        action();
      }) {}

Fuse::~Fuse() {
  {
    const std::lock_guard lock(mutex_);
    out_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace triax
