#include "core/rng.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

namespace triax {
namespace {

using Words = std::array<uint32_t, 4>;

// Known answers of Random123 (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t f = 0xffffffff;
  EXPECT_EQ(philox({f, f, f, f}, {f, f}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(HashName, IsFnv1a) {
  EXPECT_EQ(hash_name(""), 0xcbf29ce484222325u);
  EXPECT_EQ(hash_name("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(hash_name("foobar"), 0x85944171f73967e8u);
}

TEST(RandomStream, NormalsDoNotDependOnTheSlice) {
  const RandomStream stream(1234, "layers.0.attention.q.weight");
  std::vector<float> whole(1000);
  stream.normal(5, 1000, 1.0F, 0.5F, whole.data());
  for (const int64_t piece : {1, 2, 3, 7, 64}) {
    std::vector<float> cut(1000);
    for (int64_t i = 0; i < 1000; i += piece)
      stream.normal(static_cast<uint64_t>(5 + i), std::min<int64_t>(piece, 1000 - i), 1.0F, 0.5F,
                    cut.data() + i);
    EXPECT_EQ(cut, whole) << "pieces of " << piece;
  }
}

TEST(RandomStream, NormalsAreNormal) {
  const int64_t n = 200000;
  std::vector<float> x(n);
  RandomStream(7, "x").normal(0, n, 0.0F, 1.0F, x.data());
  double sum = 0, squares = 0, fourth = 0, beyond = 0;
  for (const double v : x) {
    sum += v;
    squares += v * v;
    fourth += v * v * v * v;
    beyond += std::abs(v) > 1.959964;
  }
  // Five standard deviations of each estimate.
  EXPECT_NEAR(sum / n, 0.0, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1.0, 5 * std::sqrt(2.0 / n));
  EXPECT_NEAR(fourth / n, 3.0, 5 * std::sqrt(96.0 / n));
  EXPECT_NEAR(beyond / n, 0.05, 5 * std::sqrt(0.05 * 0.95 / n));
}

TEST(RandomStream, StreamsDifferByNameAndSeed) {
  const RandomStream a(1, "a"), b(1, "b"), c(2, "a"), again(1, "a");
  int same_b = 0, same_c = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(a.bits(i), again.bits(i));
    same_b += a.bits(i) == b.bits(i);
    same_c += a.bits(i) == c.bits(i);
  }
  EXPECT_LE(same_b, 1);
  EXPECT_LE(same_c, 1);
}

TEST(RandomStream, SeedsAboveThirtyTwoBitsCount) {
  const RandomStream low(5, "a"), high(5 + (uint64_t{1} << 32), "a");
  EXPECT_NE(low.bits64(0), high.bits64(0));
}

TEST(RandomStream, BelowIsUniform) {
  const RandomStream stream(3, "order");
  std::array<int, 10> counts{};
  for (uint64_t i = 0; i < 100000; ++i) {
    const uint64_t x = stream.below(10, i);
    ASSERT_LT(x, 10u);
    ++counts[x];
  }
  for (const int c : counts) EXPECT_NEAR(c, 10000, 5 * std::sqrt(9000.0));
  EXPECT_EQ(stream.below(1, 17), 0u);
}

}  // namespace
}  // namespace triax
