#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

#include "parallel/backend.h"

namespace triax {

/// Seconds of one call of `body`, which enqueues work on the device: the best of several runs of so many
/// calls that the wait at their end does not count, over about `budget` seconds.
template <class Body>
double seconds_on(Device& device, double budget, const Body& body) {
  using Clock = std::chrono::steady_clock;
  const auto run = [&](int calls) {
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) body();
    device.synchronize();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  run(1);  // what is made at the first call
  constexpr double one_run = 5e-3;
  const int calls = static_cast<int>(std::clamp(one_run / std::max(run(1), 1e-9), 1.0, 1000.0));
  double best = std::numeric_limits<double>::infinity(), spent = 0;
  for (int runs = 0; runs < 3 || spent < budget; ++runs) {
    const double seconds = run(calls);
    spent += seconds;
    best = std::min(best, seconds / calls);
  }
  return best;
}

/// Memory of a device, filled with values that look random, small and of both signs; freed at the end.
class RandomBlock {
 public:
  RandomBlock(Device& device, int64_t elements, DType dtype);
  ~RandomBlock() { device_.deallocate(data_, bytes_); }
  RandomBlock(const RandomBlock&) = delete;
  RandomBlock& operator=(const RandomBlock&) = delete;
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  Elements elements() const;

 private:
  Device& device_;
  DType dtype_;
  size_t bytes_;
  void* data_;
};

/// FLOP/s of the backend's own square matrix products of random values in `dtype`: the best of sizes up to
/// 8192, as far as a product takes less than a twentieth of a second. On a GPU that is cuBLASLt's.
double measured_product_rate(const Backend& backend, DType dtype, double seconds);

/// Bytes/s of a copy within the device's memory; read and written bytes count.
double measured_copy_bandwidth(Device& device, double seconds);

}  // namespace triax
