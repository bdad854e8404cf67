#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace triax {

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): four 32-bit words
/// that are a function of counter and key alone, so that any rank computes any element.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// A named stream of random numbers: value i is a function of (seed, name, i). Used for initial weights,
/// dropout and the order of samples; one scalar host code path computes them everywhere.
class RandomStream {
 public:
  RandomStream(uint64_t seed, std::string_view name);
  /// Bits of element `index`.
  uint32_t bits(uint64_t index) const;
  /// Two words, 64 bits of element `index`.
  uint64_t bits64(uint64_t index) const;
  /// Uniform in [0, n), by multiplication of 64 bits (bias below n / 2^64).
  uint64_t below(uint64_t n, uint64_t index) const;
  /// Standard normal values of elements [first, first + count), by Box-Muller in double, rounded to float.
  void normal(uint64_t first, int64_t count, float mean, float stddev, float* out) const;

 private:
  std::array<uint32_t, 4> block(uint64_t index) const;
  std::array<uint32_t, 2> key_;
  uint64_t domain_;  // upper half of the counter: the stream's name
};

/// FNV-1a of a name, 64 bits: stable across platforms and versions.
uint64_t hash_name(std::string_view name);

}  // namespace triax
