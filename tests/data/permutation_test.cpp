#include "data/permutation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

namespace triax {
namespace {

std::vector<uint64_t> order(uint64_t size, uint64_t seed, uint64_t stream, uint64_t epoch) {
  const Permutation p(size, seed, stream, epoch);
  std::vector<uint64_t> all(size);
  for (uint64_t i = 0; i < size; ++i) all[i] = p(i);
  return all;
}

TEST(Permutation, VisitsEachOnce) {
  std::vector<uint64_t> sizes(70);
  std::iota(sizes.begin(), sizes.end(), 1);
  for (uint64_t size : {255, 256, 257, 1000, 4096, 65537}) sizes.push_back(size);
  for (uint64_t size : sizes) {
    std::vector<uint64_t> seen = order(size, 1234, 0, 3);
    std::sort(seen.begin(), seen.end());
    for (uint64_t i = 0; i < size; ++i) ASSERT_EQ(seen[i], i) << "size " << size;
  }
}

TEST(Permutation, SeedStreamAndEpochEachChangeIt) {
  const auto base = order(1000, 1, 0, 0);
  EXPECT_EQ(base, order(1000, 1, 0, 0));
  EXPECT_NE(base, order(1000, 2, 0, 0));
  EXPECT_NE(base, order(1000, uint64_t{1} << 32 | 1, 0, 0));
  EXPECT_NE(base, order(1000, 1, 1, 0));
  EXPECT_NE(base, order(1000, 1, 0, 1));
  EXPECT_NE(base, order(1000, 1, 0, uint64_t{1} << 32));
}

// Small sizes show it best: every order comes about equally often, odd ones too. The chi-squared sum exceeds
// these limits with probability below 1e-4 (5, 119 and 719 degrees of freedom), and the seed is fixed.
TEST(Permutation, OrdersAreEquallyLikely) {
  for (const auto& [size, orders, limit] : {std::tuple{3, 6, 30.0}, {5, 120, 190.0}, {6, 720, 870.0}}) {
    std::map<std::vector<uint64_t>, int> count;
    const int epochs = 200 * orders;
    for (int epoch = 0; epoch < epochs; ++epoch) ++count[order(size, 42, 0, epoch)];
    EXPECT_EQ(static_cast<int>(count.size()), orders);
    double chi_squared = 0;
    for (const auto& entry : count) chi_squared += std::pow(entry.second - 200.0, 2) / 200;
    EXPECT_LT(chi_squared, limit) << "size " << size;
  }
}

TEST(Permutation, NeighboursAreScattered) {
  const uint64_t size = 100000;
  const auto all = order(size, 9, 0, 0);
  double distance = 0;
  for (uint64_t i = 1; i < size; ++i)
    distance += std::abs(static_cast<double>(all[i]) - static_cast<double>(all[i - 1]));
  EXPECT_NEAR(distance / size, size / 3.0, size * 0.01);  // mean distance of two uniform points is 1/3
}

TEST(Permutation, HugeSizesAreComputedByEntry) {
  const Permutation p(uint64_t{1} << 62, 5, 0, 0), q((uint64_t{1} << 61) + 1, 5, 0, 0);
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_LT(p(i), p.size());
    EXPECT_LT(q(q.size() - 1 - i), q.size());
    EXPECT_NE(p(i), p(i + 1));
  }
}

}  // namespace
}  // namespace triax
