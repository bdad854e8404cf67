#pragma once

#include <cstdint>

namespace triax::cpu {

/// So many elements ahead memory is asked for, that it takes its time under the arithmetic's.
constexpr int64_t squares_ahead = 8192;

/// Of |x| as bits, which order like the values, an infinity or NaN above all: the largest, and the smallest
/// that is not zero, less one.
struct Magnitudes {
  uint32_t largest = 0, below_smallest = ~uint32_t{0};
};

/// The parts of a block's squares: their sum is that of `parts` exactly when there is no rest.
template <int windows>
struct BlockSum {
  double parts[windows];
  bool rest;
};

/// For an instruction set: the squares of n values, a multiple of `step`, whose sizes differ so little that
/// two windows of bits hold them (see reduce.cpp); `first_shift` makes the first. On the way the magnitudes
/// of n values at `next` are found, in what the additions leave of the processor.
struct SquaresKernel {
  int64_t step;
  BlockSum<2> (*sum_of_like_sizes)(const float* x, int64_t n, double first_shift, const float* next,
                                   Magnitudes& of_next);
};
const SquaresKernel& squares_avx512();  // on x86-64 alone
const SquaresKernel& squares_avx2();

}  // namespace triax::cpu
