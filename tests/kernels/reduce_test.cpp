#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/squares.h"
#include "kernels/cpu/tasks.h"

namespace triax {
namespace {

std::vector<float> normal(size_t n, unsigned seed, float scale = 1e-3f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw(0, scale);
  std::vector<float> x(n);
  for (auto& v : x) v = draw(random);
  return x;
}

/// Every float there is, but for the infinite: signs, exponents and mantissas at random.
std::vector<float> any_finite(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> x;
  while (x.size() < n) {
    const float v = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isfinite(v)) x.push_back(v);
  }
  return x;
}

double norm_of(Device& device, const float* x, size_t n) {
  ExactSum sum;
  cpu::squared_norm(device, {static_cast<int64_t>(n), x, &sum});
  return sum.value();
}

/// Element by element: exact_sum_test shows that this is the sum rounded once.
double truth_of(const std::vector<float>& x) {
  ExactSum sum;
  for (const float v : x) sum.add(static_cast<double>(v) * v);
  return sum.value();
}

// To the last digit, which value() rounds off.
void expect_exact(Device& device, const std::vector<float>& x, const std::string& what) {
  ExactSum sum, truth;
  cpu::squared_norm(device, {static_cast<int64_t>(x.size()), x.data(), &sum});
  for (const float v : x) truth.add(static_cast<double>(v) * v);
  sum.normalise(), truth.normalise();
  for (int i = 0; i < ExactSum::digit_count; ++i)
    EXPECT_EQ(sum.digits()[i], truth.digits()[i]) << "digit " << i << ", " << what;
}

TEST(SquaredNorm, IsExact) {
  auto device = make_cpu_device(2);
  for (const size_t n : {0, 1, 2, 100, 2047, 2049, 70001, 200000}) {
    const auto plain = normal(n, 1), wild = any_finite(n, 2);
    EXPECT_EQ(norm_of(*device, plain.data(), n), truth_of(plain)) << n;
    EXPECT_EQ(norm_of(*device, wild.data(), n), truth_of(wild)) << n;
  }
  // Few enough bits for a second truth.
  const auto x = normal(5000, 3);
  long double sum = 0;
  for (const float v : x) sum += static_cast<long double>(v) * v;
  EXPECT_NEAR(norm_of(*device, x.data(), x.size()), static_cast<double>(sum),
              1e-15 * static_cast<double>(sum));
}

// Gradients have many values that are far smaller than their largest: two sums do not hold them.
#if defined(__x86_64__)
// Also the one that squared_norm() would not choose here.
TEST(SquaredNorm, EachInstructionSetSumsABlockExactlyAndFindsTheSizesOfTheNext) {
  std::vector<const cpu::SquaresKernel*> kernels;
  if (__builtin_cpu_supports("avx512f")) kernels.push_back(&cpu::squares_avx512());
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    kernels.push_back(&cpu::squares_avx2());
  constexpr int64_t n = 2048;
  std::vector<float> x(2 * n);
  long double expected = 0;  // of squares in [2^-4, 1), multiples of 2^-50: 61 bits
  cpu::Magnitudes sizes;
  std::mt19937 random(5);
  std::uniform_real_distribution<float> draw(0.25F, 0.999F);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = i % 3 ? draw(random) : -draw(random);
    if (i < n) {
      expected += static_cast<long double>(x[i]) * x[i];
    } else {
      const uint32_t bits = std::bit_cast<uint32_t>(std::fabs(x[i]));
      sizes.largest = std::max(sizes.largest, bits);
      sizes.below_smallest = std::min(sizes.below_smallest, bits - 1);
    }
  }
  for (const auto* kernel : kernels) {
    ASSERT_EQ(n % kernel->step, 0);
    cpu::Magnitudes found;
    const auto sum = kernel->sum_of_like_sizes(x.data(), n, 0x1.8p11, x.data() + n, found);
    EXPECT_EQ(static_cast<long double>(sum.parts[0]) + sum.parts[1], expected);
    EXPECT_EQ(found.largest, sizes.largest);
    EXPECT_EQ(found.below_smallest, sizes.below_smallest);
  }
}
#endif

TEST(SquaredNorm, IsExactForValuesOfVeryDifferentSize) {
  auto device = make_cpu_device(2);
  for (const float spread : {1.0f, 2.0f, 4.0f, 8.0f, 12.0f, 18.0f})
    for (const size_t n : {5, 2048, 4099, 30000}) {
      std::vector<float> x = normal(n, 7, spread);
      for (float& v : x) v = std::exp(std::fabs(v)) * 1e-12f;
      expect_exact(*device, x, fmt::format("{} values, spread {}", n, spread));
    }
}

// One value is smaller than all others by some binary orders, around the most that two sums hold; the others
// are alike, so that what is rounded off of them adds up.
TEST(SquaredNorm, IsExactAtEverySpread) {
  auto device = make_cpu_device(1);
  std::mt19937 random(3);
  const auto odd = [&] { return std::bit_cast<float>(0x3f800001U | static_cast<uint32_t>(random() >> 9)); };
  for (int exponent = -120; exponent <= 120; exponent += 48)
    for (int spread = 0; spread < 28; ++spread)
      for (int again = 0; again < 4; ++again) {
        std::vector<float> x(2048, std::ldexp(odd(), exponent));
        x[7] = std::ldexp(odd(), exponent - spread);
        x[11] = 0;
        expect_exact(*device, x, fmt::format("exponents {} and {}", exponent, exponent - spread));
      }
}

// What is known of a block is found under the sum of the one before: each has to get its own.
TEST(SquaredNorm, IsExactWhereOneBlockIsUnlikeTheNext) {
  std::mt19937 random(4);
  for (const int threads : {1, 3}) {
    auto device = make_cpu_device(threads);
    for (const size_t tail : {0, 5, 32, 100, 2047}) {
      std::vector<float> x;
      for (int block = 0; block < 60; ++block) {
        const size_t n = block < 59 ? 2048 : tail;
        const int kind = static_cast<int>(random() % 4), exponent = static_cast<int>(random() % 200) - 100;
        std::vector<float> values = kind == 0
                                        ? std::vector<float>(n)
                                        : normal(n, static_cast<unsigned>(block), kind == 3 ? 1.0f : 1e-3f);
        for (float& v : values)
          v = kind == 3 ? std::exp(18 * v) : std::ldexp(kind == 1 ? std::fabs(v) + 1 : v, exponent);
        x.insert(x.end(), values.begin(), values.end());
      }
      expect_exact(*device, x, fmt::format("{} threads, {} values at the end", threads, tail));
    }
  }
}

TEST(EvenGrain, GivesEveryThreadAsManyTasks) {
  struct Case {
    int64_t n, threads, most, unit, grain;
  };
  for (const Case& c : {Case{0, 2, 1 << 16, 16, 1 << 14},
                        {1 << 14, 2, 1 << 16, 16, 1 << 14},
                        {20000, 20, 1 << 16, 16, 1 << 14},
                        {40000, 2, 1 << 16, 16, 20000},
                        {589824, 2, 1 << 16, 16, 58992},
                        {589824, 2, 1 << 18, 2048, 147456},
                        {589824, 1, 1 << 18, 2048, 196608},
                        {1000000, 3, 1 << 18, 2048, 82 * 2048}})
    EXPECT_EQ(cpu::even_grain(c.n, c.threads, c.most, c.unit), c.grain) << c.n << " on " << c.threads;
  for (const int64_t n : {20000, 65537, 589824, 2359296, 38597376})
    for (const int64_t threads : {1, 2, 3, 7, 64}) {
      const int64_t grain = cpu::even_grain(n, threads, 1 << 16, 16), tasks = (n + grain - 1) / grain;
      EXPECT_EQ(grain % 16, 0);
      EXPECT_LE(grain, 1 << 16);
      if (grain == 1 << 14) continue;
      EXPECT_EQ((tasks + threads - 1) / threads * threads, tasks) << n << " on " << threads;
    }
}

TEST(SquaredNorm, TakesTheEndsOfTheRange) {
  auto device = make_cpu_device(1);
  const float largest = std::numeric_limits<float>::max(),
              smallest = std::numeric_limits<float>::denorm_min();
  for (const float scale : {largest, smallest, std::numeric_limits<float>::min()}) {
    const std::vector<float> x(3000, scale);
    EXPECT_EQ(norm_of(*device, x.data(), x.size()), 3000 * (static_cast<double>(scale) * scale));
  }
  // A window's upper edge, where rounding carries.
  const std::vector<float> edge(2048, std::nextafter(2.0f, 0.0f));
  EXPECT_EQ(norm_of(*device, edge.data(), edge.size()), truth_of(edge));
  std::vector<float> both(2048, smallest);
  both[17] = largest;
  EXPECT_EQ(norm_of(*device, both.data(), both.size()), truth_of(both));
}

TEST(SquaredNorm, BitsDoNotDependOnTheSplit) {
  const auto x = normal(300000, 5);
  std::mt19937 random(9);
  auto one = make_cpu_device(1);
  const double whole = norm_of(*one, x.data(), x.size());
  for (const int threads : {1, 2, 3}) {
    auto device = make_cpu_device(threads);
    for (int round = 0; round < 5; ++round) {
      ExactSum sum;
      for (size_t begin = 0; begin < x.size();) {
        const size_t n = std::min<size_t>(x.size() - begin, 1 + random() % 100000);
        cpu::squared_norm(*device, {static_cast<int64_t>(n), x.data() + begin, &sum});
        begin += n;
      }
      ASSERT_EQ(std::bit_cast<uint64_t>(sum.value()), std::bit_cast<uint64_t>(whole));
    }
  }
}

TEST(SquaredNorm, TellsOfValuesThatAreNotFinite) {
  auto device = make_cpu_device(2);
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()})
    for (const size_t place : {0, 2047, 5000, 99999}) {
      auto x = normal(100000, 1);
      x[place] = bad;
      EXPECT_TRUE(std::isnan(norm_of(*device, x.data(), x.size())));
    }
}

TEST(Add, AddsAnyLength) {
  auto device = make_cpu_device(2);
  for (const size_t n : {0, 1, 17, 65537, 200001}) {
    const auto x = normal(n, 1), before = normal(n, 2);
    auto y = before;
    cpu::add(*device, {static_cast<int64_t>(n), x.data(), y.data()});
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(y[i], before[i] + x[i]) << i;
  }
}

TEST(SquaredNorm, OnlyNonFiniteLeavesTheSumOfFiniteValues) {
  auto device = make_cpu_device(2);
  auto x = any_finite(200001, 6);
  ExactSum sum;
  sum.add(0.5);
  cpu::squared_norm(*device, {static_cast<int64_t>(x.size()), x.data(), &sum, true});
  EXPECT_EQ(sum.value(), 0.5);
  x[150000] = std::numeric_limits<float>::quiet_NaN();
  cpu::squared_norm(*device, {static_cast<int64_t>(x.size()), x.data(), &sum, true});
  EXPECT_TRUE(std::isnan(sum.value()));
}

TEST(NormaliseSums, LeavesShortDigitsOfTheSameValue) {
  auto device = make_cpu_device(1);
  ExactSum sums[2];
  for (int i = 0; i < 1000; ++i) sums[0].add(0x1.fffffp31), sums[1].add(-0.1);
  const double before[2] = {sums[0].value(), sums[1].value()};
  cpu::normalise_sums(*device, {2, sums});
  for (int s = 0; s < 2; ++s) {
    EXPECT_EQ(sums[s].value(), before[s]);
    for (int k = 0; k + 1 < ExactSum::count; ++k) EXPECT_EQ(sums[s].digits()[k] >> 32, 0);
  }
}

TEST(FindNonFinite, GivesTheFirst) {
  auto device = make_cpu_device(2);
  const auto find = [&](const std::vector<float>& x) {
    int64_t index = -7;
    cpu::find_non_finite(*device, {static_cast<int64_t>(x.size()), x.data(), &index});
    return index;
  };
  EXPECT_EQ(find({}), -1);
  auto x = any_finite(200001, 4);
  x[3] = std::numeric_limits<float>::max();
  EXPECT_EQ(find(x), -1);
  x[200000] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(find(x), 200000);
  x[150000] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(find(x), 150000);
  x[65536] = -std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(find(x), 65536);
  x[0] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(find(x), 0);
}

}  // namespace
}  // namespace triax
