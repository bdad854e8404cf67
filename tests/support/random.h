#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace triax::test {

/// Deterministic numbers for tests (SplitMix64), independent of the generator under test in core/rng.h.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t bits() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  /// In [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double normal() {
    return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(6.283185307179586 * uniform());
  }
  /// In [0, n).
  int64_t below(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }

  std::vector<float> normals(int64_t n, double stddev = 1, double mean = 0) {
    std::vector<float> out(static_cast<size_t>(n));
    for (float& x : out) x = static_cast<float>(mean + stddev * normal());
    return out;
  }

 private:
  uint64_t state_;
};

}  // namespace triax::test
