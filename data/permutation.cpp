#include "data/permutation.h"

#include <bit>

#include "core/error.h"
#include "core/rng.h"

namespace triax {

namespace {
constexpr uint32_t rounds = 12;
}

Permutation::Permutation(uint64_t size, uint64_t seed, uint64_t stream, uint64_t epoch)
    : size_(size), epoch_(epoch) {
  check(size >= 1 && size <= uint64_t{1} << 62, "a permutation of {} entries; 1 to 2^62 are possible", size);
  half_bits_ = (std::bit_width(size - 1) + 1) / 2;
  const RandomStream keys(seed, "data.order");
  key_ = {keys.bits(2 * stream), keys.bits(2 * stream + 1)};
}

uint64_t Permutation::operator()(uint64_t index) const {
  check(index < size_, "entry {} of a permutation of {}", index, size_);
  if (size_ == 1) return 0;
  // The domain is at most four times the size, so that four steps are enough on average.
  do index = encrypt(index);
  while (index >= size_);
  // A balanced Feistel network makes even permutations only; a swap that is done in half of the epochs gives
  // the odd ones their share.
  if (index < 2) index ^= round_function(0, rounds) & 1;
  return index;
}

uint32_t Permutation::round_function(uint64_t half, uint32_t round) const {
  // A half has at most 31 bits.
  return philox({static_cast<uint32_t>(half), round, static_cast<uint32_t>(epoch_),
                 static_cast<uint32_t>(epoch_ >> 32)},
                key_)[0];
}

uint64_t Permutation::encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (uint32_t round = 0; round < rounds; ++round) {
    const uint64_t next = left ^ (round_function(right, round) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

}  // namespace triax
