#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/squares.h"

// SquaresKernel for one instruction set; included by squares_{avx512,avx2}.cpp, each of which compiles it for
// its own target, in an unnamed namespace, so that the linker can't swap one target's code for the other's.
//
// Isa supplies: lanes, the doubles of a vector; Doubles and Words, vectors of doubles and of 32 bits;
// widen(), which makes `lanes` floats doubles.
namespace triax::cpu {

namespace {

constexpr int squares_chains = 4;  // an addition waits for the one before

/// In chains of their own. The shift itself takes up the high parts,
/// which do not carry it to the next power of two: it goes on rounding alike.
template <class Isa>
BlockSum<2> sum_of_like_sizes(const float* x, int64_t n, double first_shift, const float* next,
                              Magnitudes& of_next) {
  using Doubles = typename Isa::Doubles;
  using Words = typename Isa::Words;
  constexpr int chains = squares_chains, lanes = Isa::lanes, line = 16;
  constexpr int64_t step = chains * lanes;
  const Doubles shift = first_shift - Doubles{};
  Doubles high[chains], low[chains];
  for (int c = 0; c < chains; ++c) high[c] = shift, low[c] = Doubles{};
  Words largest{}, below_smallest = ~Words{};
  for (int64_t i = 0; i < n; i += step) {
    for (int64_t l = 0; l < step; l += line) __builtin_prefetch(next + squares_ahead + i + l);
#pragma GCC unroll squares_chains
    for (int c = 0; c < chains; ++c) {
      const Doubles wide = Isa::widen(x + i + c * lanes), before = high[c];
      high[c] += wide * wide;
      low[c] += wide * wide - (high[c] - before);
    }
#pragma GCC unroll 2
    for (int64_t j = i; j < i + step; j += 2 * lanes) {
      Words bits;
      std::memcpy(&bits, next + j, sizeof bits);
      bits &= 0x7fffffff;
      largest = largest > bits ? largest : bits;
      below_smallest = below_smallest < bits - 1 ? below_smallest : bits - 1;
    }
  }
  for (int lane = 0; lane < 2 * lanes; ++lane) {
    of_next.largest = std::max(of_next.largest, largest[lane]);
    of_next.below_smallest = std::min(of_next.below_smallest, below_smallest[lane]);
  }
  const Doubles all_high = (high[0] - shift) + (high[1] - shift) + ((high[2] - shift) + (high[3] - shift)),
                all_low = low[0] + low[1] + (low[2] + low[3]);
  BlockSum<2> sum{};
  for (int lane = 0; lane < lanes; ++lane) sum.parts[0] += all_high[lane], sum.parts[1] += all_low[lane];
  return sum;
}

template <class Isa>
constexpr SquaresKernel squares_of{squares_chains * Isa::lanes, sum_of_like_sizes<Isa>};

}  // namespace

}  // namespace triax::cpu
