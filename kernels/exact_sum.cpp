#include "kernels/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

namespace triax {

namespace {
constexpr int kDigitBits = 32;
constexpr int64_t kLowMask = 0xffffffff;
// A normalised digit and this many additions of less than 2^32 stay below 2^62, which leaves room for the sum
// of 2^30 normalised digits on top.
constexpr int64_t kMaxPending = int64_t{1} << 30;
}  // namespace

void ExactSum::add(double x) {
  if (x == 0) return;
  const auto bits = std::bit_cast<uint64_t>(x);
  const int biased = static_cast<int>(bits >> 52 & 0x7ff);
  uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  if (biased != 0) mantissa |= uint64_t{1} << 52;
  // x = +-mantissa * 2^(position + lowest_exponent)
  int position = (biased == 0 ? 1 : biased) - 1075 - lowest_exponent;
  if (position + 53 > kDigitBits * count) {  // too large, infinite or not a number
    ++digits_[count];
    return;
  }
  if (position < 0) {
    mantissa = position <= -64 ? 0 : mantissa >> -position;
    position = 0;
  }
  const int first = position / kDigitBits, shift = position % kDigitBits;
  // 53 bits shifted by up to 31 reach over three digits.
  const uint64_t low = mantissa << shift;
  const uint64_t high = shift == 0 ? 0 : mantissa >> (64 - shift);
  const int64_t parts[3] = {static_cast<int64_t>(low & kLowMask), static_cast<int64_t>(low >> kDigitBits),
                            static_cast<int64_t>(high)};
  const bool negative = bits >> 63;
  for (int i = 0; i < 3; ++i) {
    if (parts[i] == 0) continue;  // also: never past the top digit
    const auto place = static_cast<size_t>(first) + static_cast<size_t>(i);
    digits_[place] += negative ? -parts[i] : parts[i];
  }
  if (++pending_ >= kMaxPending) normalise();
}

void ExactSum::add(const ExactSum& other) {
  if (other.pending_ + 1 >= kMaxPending - pending_) normalise();
  ExactSum addend = other;
  addend.normalise();
  for (size_t i = 0; i < digits_.size(); ++i) digits_[i] += addend.digits_[i];
  ++pending_;
}

void ExactSum::normalise() {
  int64_t carry = 0;
  for (size_t i = 0; i + 1 < static_cast<size_t>(count); ++i) {
    // Carried in halves: digit + carry itself could overflow.
    const int64_t low = (digits_[i] & kLowMask) + (carry & kLowMask);
    carry = (digits_[i] >> kDigitBits) + (carry >> kDigitBits) + (low >> kDigitBits);
    digits_[i] = low & kLowMask;
  }
  digits_[count - 1] += carry;
  pending_ = 0;
}

double ExactSum::value() const {
  ExactSum sum = *this;
  sum.normalise();
  auto& digits = sum.digits_;
  const int64_t top = digits[count - 1];
  if (digits[count] != 0 || top > kLowMask || top < -kLowMask)
    return std::numeric_limits<double>::quiet_NaN();
  const bool negative = top < 0;
  if (negative) {  // the magnitude: digits of -sum
    for (auto& d : digits) d = -d;
    sum.normalise();
  }
  int highest = count - 1;
  while (highest >= 0 && digits[static_cast<size_t>(highest)] == 0) --highest;
  if (highest < 0) return 0;

  // 64 bits from the leading one on; whatever lies below them only decides ties.
  const auto digit = [&](int k) {
    return k < 0 ? uint64_t{0} : static_cast<uint64_t>(digits[static_cast<size_t>(k)]);
  };
  const int leading = std::countl_zero(static_cast<uint32_t>(digit(highest)));
  uint64_t window = (digit(highest) << kDigitBits | digit(highest - 1)) << leading;
  const uint64_t next = digit(highest - 2) << leading;
  window |= next >> kDigitBits;
  bool rest = (next & kLowMask) != 0;
  for (int k = highest - 3; k >= 0; --k) rest = rest || digit(k) != 0;
  if (rest) window |= 1;
  const double magnitude =
      std::ldexp(static_cast<double>(window), kDigitBits * (highest - 1) + lowest_exponent - leading);
  return negative ? -magnitude : magnitude;
}

}  // namespace triax
