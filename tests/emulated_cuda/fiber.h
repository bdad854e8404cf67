#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace emulated_cuda {

/// A stack of its own, on which a function runs until it calls suspend(): what a GPU's thread is that waits
/// at a barrier. Fibers stay on the thread of the operating system that made them.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs `body` from its beginning, or from where it suspended (start() once, then resume()); returns when
  /// it suspends or ends.
  void start(const std::function<void()>& body);
  void resume();
  /// Back to whoever started or resumed this fiber; from inside of `body` alone.
  void suspend();

 private:
  struct Machine;
  std::unique_ptr<Machine> machine_;
};

}  // namespace emulated_cuda
