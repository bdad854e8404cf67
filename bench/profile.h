#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>

#include "core/device.h"
#include "kernels/work.h"

namespace triax {

/// A device that computes on another one, which must outlive it, and keeps what each kernel took. Its kernels
/// are timed_kernels().
class TimedDevice final : public Device {
 public:
  using Clock = std::chrono::steady_clock;
  /// Calls of one kernel; products of one shape.
  struct Line {
    int64_t calls = 0;
    double seconds = 0, flops = 0, bytes = 0;
  };

  explicit TimedDevice(Device& inner) : inner_(&inner) {}

  DeviceKind kind() const override { return inner_->kind(); }
  void* allocate(size_t bytes, std::string_view purpose) override { return inner_->allocate(bytes, purpose); }
  void deallocate(void* block, size_t bytes) override { inner_->deallocate(block, bytes); }
  void* allocate_host(size_t bytes, std::string_view purpose) override {
    return inner_->allocate_host(bytes, purpose);
  }
  void deallocate_host(void* block, size_t bytes) override { inner_->deallocate_host(block, bytes); }
  void copy(void* destination, const void* source, size_t bytes) override;
  void write(void* destination, const void* host_source, size_t bytes) override;
  void read(void* host_destination, const void* source, size_t bytes) override;
  void copy_rows(void* destination, size_t destination_stride, const void* source, size_t source_stride,
                 size_t bytes, int64_t rows) override;
  void fill_zero(void* destination, size_t bytes) override;
  void synchronize() override { inner_->synchronize(); }
  ThreadPool& threads() override { return inner_->threads(); }

  Device& inner() { return *inner_; }
  /// Adds a call that began at `start` and ends now.
  void add(const std::string& name, const KernelWork& work, Clock::time_point start);
  const std::map<std::string, Line>& lines() const { return lines_; }
  void forget() { lines_.clear(); }

 private:
  Device* inner_;
  std::map<std::string, Line> lines_;
};

/// cpu_kernels(), for a TimedDevice alone: each call is timed and added to it.
const Kernels& timed_kernels();

/// Rates in operations and bytes per second that no kernel is expected to pass, out of caches.
struct Roofs {
  double flops, bytes;
};
/// Prints what kernels took in `steps` steps of `seconds` altogether, per step, most first: calls, time,
/// share of the step, and the time at the roof (the longer of operations and bytes) as a share of the
/// kernel's. The last line is what no kernel accounts for.
void print_profile(std::ostream& out, const std::map<std::string, TimedDevice::Line>& lines, int steps,
                   double seconds, const Roofs& roofs);

}  // namespace triax
