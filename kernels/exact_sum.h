#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace triax {

/// A sum of doubles whose value does not depend on the order or grouping of its addends: a fixed-point number
/// wide enough for any product of two floats and any loss (a "long accumulator", Kulisch; compare Demmel and
/// Nguyen, "Fast reproducible floating-point summation", 2013). The digits add element-wise, so ranks combine
/// their sums with one integer all-reduce of `digits`. Trivially copyable: `word_count` int64, the digits and
/// then the additions since they were normalised, which is how device code adds to one and how a rank sends
/// several at once. constexpr throughout: the same code runs in CUDA's kernels.
class ExactSum {
 public:
  /// Digit k holds an integer multiple of 2^(32 k + lowest_exponent). Digits are kept far from overflow:
  /// after normalise() at most 32 bits each (the top one signed), so that 2^30 sums can be added digit by
  /// digit.
  static constexpr int lowest_exponent = -320;
  static constexpr int count = 20;  ///< up to 2^(320): above it, or with non-finite addends, value() is NaN

  /// What one double adds: `value[i]` to digit `first + i`; nothing to a digit where it is 0.
  struct Addend {
    int first;
    int64_t value[3];
  };
  static constexpr Addend addend_of(double x);

  /// Adds one double exactly (bits below 2^lowest_exponent, never reached by squares of normal floats, are
  /// cut).
  constexpr void add(double x);
  /// Adds another sum exactly.
  constexpr void add(const ExactSum& other);
  /// Propagates carries between digits; call before exchanging digits.
  constexpr void normalise();
  /// The sum, rounded once to double (nearest even).
  constexpr double value() const;

  /// For the integer all-reduce between ranks; the last element counts non-finite addends.
  constexpr int64_t* digits() { return digits_.data(); }
  static constexpr int digit_count = count + 1;
  static constexpr int word_count = digit_count + 1;

 private:
  static constexpr int digit_bits = 32;
  static constexpr int64_t low_mask = 0xffffffff;
  // A normalised digit and this many additions of less than 2^32 stay below 2^62, which leaves room for the
  // sum of 2^30 normalised digits on top.
  static constexpr int64_t max_pending = int64_t{1} << 30;

  std::array<int64_t, digit_count> digits_{};
  int64_t pending_ = 0;  // additions since the last normalise(), so that digits never overflow
};
static_assert(sizeof(ExactSum) == ExactSum::word_count * sizeof(int64_t));

constexpr ExactSum::Addend ExactSum::addend_of(double x) {
  if (x == 0) return {0, {0, 0, 0}};
  const auto bits = std::bit_cast<uint64_t>(x);
  const int biased = static_cast<int>(bits >> 52 & 0x7ff);
  uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  if (biased != 0) mantissa |= uint64_t{1} << 52;
  // x = +-mantissa * 2^(position + lowest_exponent)
  int position = (biased == 0 ? 1 : biased) - 1075 - lowest_exponent;
  if (position + 53 > digit_bits * count) return {count, {1, 0, 0}};  // too large, infinite or not a number
  if (position < 0) {
    mantissa = position <= -64 ? 0 : mantissa >> -position;
    position = 0;
  }
  const int first = position / digit_bits, shift = position % digit_bits;
  // 53 bits shifted by up to 31 reach over three digits, but never past the top one.
  const uint64_t low = mantissa << shift;
  const uint64_t high = shift == 0 ? 0 : mantissa >> (64 - shift);
  const int64_t sign = bits >> 63 ? -1 : 1;
  return {first,
          {sign * static_cast<int64_t>(low & low_mask), sign * static_cast<int64_t>(low >> digit_bits),
           sign * static_cast<int64_t>(high)}};
}

constexpr void ExactSum::add(double x) {
  const Addend addend = addend_of(x);
  int64_t* digits = digits_.data();
  for (int i = 0; i < 3; ++i)
    if (addend.value[i] != 0) digits[addend.first + i] += addend.value[i];
  if (++pending_ >= max_pending) normalise();
}

constexpr void ExactSum::add(const ExactSum& other) {
  if (other.pending_ + 1 >= max_pending - pending_) normalise();
  ExactSum addend = other;
  addend.normalise();
  int64_t* digits = digits_.data();
  for (int i = 0; i < digit_count; ++i) digits[i] += addend.digits()[i];
  ++pending_;
}

constexpr void ExactSum::normalise() {
  int64_t* digits = digits_.data();
  int64_t carry = 0;
  for (int i = 0; i + 1 < count; ++i) {
    // Carried in halves: digit + carry itself could overflow.
    const int64_t low = (digits[i] & low_mask) + (carry & low_mask);
    carry = (digits[i] >> digit_bits) + (carry >> digit_bits) + (low >> digit_bits);
    digits[i] = low & low_mask;
  }
  digits[count - 1] += carry;
  pending_ = 0;
}

constexpr double ExactSum::value() const {
  ExactSum sum = *this;
  sum.normalise();
  int64_t* digits = sum.digits();
  const int64_t top = digits[count - 1];
  if (digits[count] != 0 || top > low_mask || top < -low_mask)
    return std::numeric_limits<double>::quiet_NaN();
  const bool negative = top < 0;
  if (negative) {  // the magnitude: digits of -sum
    for (int i = 0; i < digit_count; ++i) digits[i] = -digits[i];
    sum.normalise();
  }
  int highest = count - 1;
  while (highest >= 0 && digits[highest] == 0) --highest;
  if (highest < 0) return 0;

  // 64 bits from the leading one on; whatever lies below them only decides ties.
  const auto digit = [&](int k) { return k < 0 ? uint64_t{0} : static_cast<uint64_t>(digits[k]); };
  int leading = 0;  // zeros of the leading digit
  while (!(digit(highest) << leading >> 31 & 1)) ++leading;
  uint64_t window = (digit(highest) << digit_bits | digit(highest - 1)) << leading;
  const uint64_t next = digit(highest - 2) << leading;
  window |= next >> digit_bits;
  bool rest = (next & low_mask) != 0;
  for (int k = highest - 3; k >= 0; --k) rest = rest || digit(k) != 0;
  if (rest) window |= 1;
  // Times a power of two, which is exact: no sum is so small or so large that its double is not normal.
  const int exponent = digit_bits * (highest - 1) + lowest_exponent - leading;
  const auto power = std::bit_cast<double>(static_cast<uint64_t>(1023 + exponent) << 52);
  const double magnitude = static_cast<double>(window) * power;
  return negative ? -magnitude : magnitude;
}

}  // namespace triax
