#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace triax {

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): four 32-bit words
/// that are a function of counter and key alone, so that any rank computes any element. In place of the
/// counter and on plain words, so that a loop over counters becomes vector code where it is inlined;
/// constexpr, so that kernels of a GPU draw by the same code.
__attribute__((always_inline)) constexpr void philox(uint32_t& c0, uint32_t& c1, uint32_t& c2, uint32_t& c3,
                                                     uint32_t k0, uint32_t k1) {
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c0, p1 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
}
/// The same, of a counter and a key.
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

  /// What philox() gets besides the index / 4 (lower half of the counter), for kernels that draw many at
  /// once.
  const std::array<uint32_t, 2>& key() const { return key_; }
  uint64_t domain() const { return domain_; }  ///< upper half of the counter

 private:
  std::array<uint32_t, 4> block(uint64_t index) const;
  std::array<uint32_t, 2> key_;
  uint64_t domain_;  // upper half of the counter: the stream's name
};

/// FNV-1a of a name, 64 bits: stable across platforms and versions.
uint64_t hash_name(std::string_view name);

}  // namespace triax
