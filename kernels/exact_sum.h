#pragma once

#include <array>
#include <cstdint>

namespace triax {

/// A sum of doubles whose value does not depend on the order or grouping of its addends: a fixed-point number
/// wide enough for any product of two floats and any loss (a "long accumulator", Kulisch; compare Demmel and
/// Nguyen, "Fast reproducible floating-point summation", 2013). The digits add element-wise, so ranks combine
/// their sums with one integer all-reduce of `digits`. Trivially copyable: `word_count` int64, the digits and
/// then the additions since they were normalised, which is how device code adds to one and how a rank sends
/// several at once.
class ExactSum {
 public:
  /// Digit k holds an integer multiple of 2^(32 k + lowest_exponent). Digits are kept far from overflow:
  /// after normalise() at most 32 bits each (the top one signed), so that 2^30 sums can be added digit by
  /// digit.
  static constexpr int lowest_exponent = -320;
  static constexpr int count = 20;  ///< up to 2^(320): above it, or with non-finite addends, value() is NaN

  /// Adds one double exactly (bits below 2^lowest_exponent, never reached by squares of normal floats, are
  /// cut).
  void add(double x);
  /// Adds another sum exactly.
  void add(const ExactSum& other);
  /// Propagates carries between digits; call before exchanging digits.
  void normalise();
  /// The sum, rounded once to double (nearest even).
  double value() const;

  /// For the integer all-reduce between ranks; the last element counts non-finite addends.
  int64_t* digits() { return digits_.data(); }
  static constexpr int digit_count = count + 1;
  static constexpr int word_count = digit_count + 1;

 private:
  std::array<int64_t, digit_count> digits_{};
  int64_t pending_ = 0;  // additions since the last normalise(), so that digits never overflow
};
static_assert(sizeof(ExactSum) == ExactSum::word_count * sizeof(int64_t));

}  // namespace triax
