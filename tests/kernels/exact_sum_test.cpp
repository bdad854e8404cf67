#include "kernels/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace triax {
namespace {

/// An independent truth: a binary number of 1600 bits, one bit an element, two's complement, from 2^-800 on.
class Bits {
 public:
  void add(double x) {
    int exponent = 0;
    double fraction = std::frexp(std::abs(x), &exponent);  // x = fraction * 2^exponent
    std::vector<int> addend(kCount, 0);
    for (int bit = exponent - 1; fraction != 0; --bit) {
      fraction *= 2;
      const int place = bit + kZero;
      if (fraction >= 1) addend[static_cast<size_t>(place)] = 1, fraction -= 1;
    }
    int carry = 0;
    for (size_t i = 0; i < kCount; ++i) {
      const int s = bits_[i] + (x < 0 ? -addend[i] : addend[i]) + carry;
      bits_[i] = s & 1;
      carry = (s - bits_[i]) / 2;
    }
  }

  /// Round to nearest, ties to even, decided bit by bit.
  double value() const {
    std::vector<int> magnitude = bits_;
    const bool negative = bits_.back() == 1;
    if (negative) {
      int carry = 1;
      for (auto& b : magnitude) {
        const int s = 1 - b + carry;
        b = s & 1, carry = s >> 1;
      }
    }
    int top = static_cast<int>(kCount) - 1;
    while (top >= 0 && !magnitude[static_cast<size_t>(top)]) --top;
    if (top < 0) return 0;
    double kept = 0;
    for (int i = 0; i < 53; ++i) kept = 2 * kept + at(magnitude, top - i);
    bool below = false;
    for (int i = top - 54; i >= 0; --i) below |= at(magnitude, i) != 0;
    if (at(magnitude, top - 53) && (below || at(magnitude, top - 52))) kept += 1;
    const double v = std::ldexp(kept, top - 52 - kZero);
    return negative ? -v : v;
  }

 private:
  static constexpr size_t kCount = 1600;
  static constexpr int kZero = 800;
  static int at(const std::vector<int>& v, int i) { return i < 0 ? 0 : v[static_cast<size_t>(i)]; }
  std::vector<int> bits_ = std::vector<int>(kCount, 0);
};

std::vector<double> mixed(unsigned seed, int n, int lowest, int highest) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int> exponent(lowest, highest);
  std::uniform_real_distribution<double> fraction(-1, 1);
  std::vector<double> x(static_cast<size_t>(n));
  for (auto& v : x) v = std::ldexp(fraction(random), exponent(random));
  return x;
}

double sum_of(const std::vector<double>& x) {
  ExactSum s;
  for (const double v : x) s.add(v);
  return s.value();
}

double truth_of(const std::vector<double>& x) {
  Bits b;
  for (const double v : x) b.add(v);
  return b.value();
}

TEST(ExactSum, IsTheSumRoundedOnce) {
  for (const auto& [lowest, highest] :
       std::vector<std::pair<int, int>>{{-3, 3}, {-60, 60}, {-200, 300}, {-260, -200}})
    for (unsigned seed = 0; seed < 40; ++seed) {
      const auto x = mixed(seed, 30, lowest, highest);
      EXPECT_EQ(sum_of(x), truth_of(x)) << "exponents " << lowest << ".." << highest << " seed " << seed;
    }
}

TEST(ExactSum, RoundsTiesToEven) {
  const double unit = std::ldexp(1.0, -53);  // half a unit in the last place of 1
  EXPECT_EQ(sum_of({1.0, unit}), 1.0);
  EXPECT_EQ(sum_of({1.0, unit, std::ldexp(1.0, -300)}), 1.0 + 2 * unit);
  EXPECT_EQ(sum_of({1.0, unit, -std::ldexp(1.0, -300)}), 1.0);
  EXPECT_EQ(sum_of({1.0, 2 * unit, unit}), 1.0 + 4 * unit);
  EXPECT_EQ(sum_of({-1.0, -2 * unit, -unit}), -1.0 - 4 * unit);
}

TEST(ExactSum, CancelsCompletely) {
  auto x = mixed(7, 500, -200, 300);
  const size_t n = x.size();
  for (size_t i = 0; i < n; ++i) x.push_back(-x[i]);
  std::shuffle(x.begin(), x.end(), std::mt19937(3));
  EXPECT_EQ(sum_of(x), 0.0);
  x.push_back(1e-70);
  EXPECT_EQ(sum_of(x), 1e-70);
}

TEST(ExactSum, DoesNotDependOnOrderOrGrouping) {
  auto x = mixed(11, 5000, -100, 100);
  const double whole = sum_of(x);
  std::mt19937 random(5);
  for (int round = 0; round < 10; ++round) {
    std::shuffle(x.begin(), x.end(), random);
    std::vector<ExactSum> parts(7);
    for (const double v : x) parts[random() % parts.size()].add(v);
    // As ranks do it: normalised digits, added as integers.
    ExactSum digits, total;
    for (auto& p : parts) {
      total.add(p);
      p.normalise();
      for (int k = 0; k < ExactSum::digit_count; ++k) digits.digits()[k] += p.digits()[k];
    }
    ASSERT_EQ(std::bit_cast<uint64_t>(total.value()), std::bit_cast<uint64_t>(whole));
    ASSERT_EQ(std::bit_cast<uint64_t>(digits.value()), std::bit_cast<uint64_t>(whole));
  }
}

TEST(ExactSum, DigitsStaySmallOverManyAdditions) {
  // Doubling a sum with itself stands for many additions: 2^40 of them overflow no digit.
  ExactSum s;
  s.add(std::nextafter(1.0, 2.0));
  for (int i = 0; i < 40; ++i) s.add(ExactSum(s));
  EXPECT_EQ(s.value(), std::ldexp(std::nextafter(1.0, 2.0), 40));
  // More than 2^30 digits' worth of negative sums.
  ExactSum n;
  n.add(-3.0);
  for (int i = 0; i < 35; ++i) n.add(ExactSum(n));
  n.add(std::ldexp(3.0, 35));
  EXPECT_EQ(n.value(), 0.0);
}

TEST(ExactSum, NormalisedDigitsAreShort) {
  ExactSum s;
  for (const double v : mixed(1, 1000, -100, 100)) s.add(v);
  s.add(-1e60);
  s.normalise();
  for (int k = 0; k + 1 < ExactSum::count; ++k) {
    EXPECT_GE(s.digits()[k], 0);
    EXPECT_LT(s.digits()[k], int64_t{1} << 32);
  }
  EXPECT_EQ(s.digits()[ExactSum::count - 1], -1);
}

TEST(ExactSum, TakesTheSmallestSquaresAndCutsBelowItsLowestBit) {
  const double smallest = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(sum_of({smallest * smallest}), smallest * smallest);
  EXPECT_EQ(sum_of({std::ldexp(1.0, -320)}), std::ldexp(1.0, -320));
  EXPECT_EQ(sum_of({std::ldexp(1.75, -320)}), std::ldexp(1.0, -320));
  EXPECT_EQ(sum_of({std::ldexp(1.0, -321), std::ldexp(1.0, -1074)}), 0.0);
  const double largest = std::numeric_limits<float>::max();
  EXPECT_EQ(sum_of({largest * largest, largest * largest}), 2 * (largest * largest));
}

TEST(ExactSum, SaysNotANumberBeyondItsRange) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isnan(sum_of({1.0, infinity})));
  EXPECT_TRUE(std::isnan(sum_of({infinity, -infinity})));
  EXPECT_TRUE(std::isnan(sum_of({std::nan("")})));
  EXPECT_TRUE(std::isnan(sum_of({std::ldexp(1.0, 321)})));
  EXPECT_FALSE(std::isnan(sum_of({std::ldexp(1.0, 318)})));
  ExactSum a, b;
  a.add(infinity);
  b.add(a);
  EXPECT_TRUE(std::isnan(b.value()));
}

TEST(ExactSum, IsZeroAtFirst) {
  EXPECT_EQ(ExactSum().value(), 0.0);
  EXPECT_EQ(sum_of({0.0, -0.0}), 0.0);
}

}  // namespace
}  // namespace triax
