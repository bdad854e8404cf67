#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

#include "core/device.h"

namespace triax {

/// Shortest duration of `body` in seconds, over at least three runs and about `budget` seconds, after one
/// that is not counted: other work on the machine only ever lengthens a run.
template <class Body>
double best_seconds(double budget, const Body& body) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point t) {
    return std::chrono::duration<double>(Clock::now() - t).count();
  };
  body();
  const auto start = Clock::now();
  double best = std::numeric_limits<double>::infinity();
  for (int runs = 0; runs < 3 || since(start) < budget; ++runs) {
    const auto begin = Clock::now();
    body();
    best = std::min(best, since(begin));
  }
  return best;
}

/// Mean duration of `body` in seconds, done over and over for about `budget` seconds, after one that is not
/// counted: with all that the machine does meanwhile.
template <class Body>
double mean_seconds(double budget, const Body& body) {
  using Clock = std::chrono::steady_clock;
  body();
  const auto start = Clock::now();
  double passed = 0;
  int64_t runs = 0;
  for (; passed < budget; ++runs) {
    body();
    passed = std::chrono::duration<double>(Clock::now() - start).count();
  }
  return passed / static_cast<double>(runs);
}

/// Floats of device memory for a measurement, filled with small values of both signs, freed at the end.
class DeviceBlock {
 public:
  DeviceBlock(Device& device, int64_t count) : device_(device), count_(count) {
    data_ = static_cast<float*>(device.allocate(bytes(), "a measurement"));
    for (int64_t i = 0; i < count; ++i)
      data_[i] = static_cast<float>((i * 2654435761) >> 8 & 0xffff) * 3e-6f - 0.1f;
  }
  ~DeviceBlock() { device_.deallocate(data_, bytes()); }
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;

  float* data() const { return data_; }

 private:
  size_t bytes() const { return static_cast<size_t>(count_) * sizeof(float); }
  Device& device_;
  int64_t count_;
  float* data_;
};

}  // namespace triax
