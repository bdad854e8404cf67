#pragma once

#include <array>
#include <cstdint>

namespace triax {

/// A pseudo-random order of 0 .. size-1, computed entry by entry without memory: a Feistel network over
/// Philox on the next power of four, walked until the value is below size (Black and Rogaway, "Ciphers with
/// arbitrary finite domains", 2002). The same (size, seed, stream, epoch) is the same order everywhere.
class Permutation {
 public:
  /// `stream` tells the sources of a blend apart. size is 1 .. 2^62.
  Permutation(uint64_t size, uint64_t seed, uint64_t stream, uint64_t epoch);
  /// Where entry `index` (below size) goes.
  uint64_t operator()(uint64_t index) const;
  uint64_t size() const { return size_; }

 private:
  uint64_t encrypt(uint64_t value) const;
  uint32_t round_function(uint64_t half, uint32_t round) const;

  uint64_t size_;
  int half_bits_ = 0;
  uint64_t epoch_;
  std::array<uint32_t, 2> key_;
};

}  // namespace triax
