#include "data/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "core/error.h"
#include "temporary_file.h"

namespace triax {
namespace {

using test::counting;
using test::CountingTokens;

constexpr double one[] = {1.0};

std::vector<int32_t> sample(const SampleOrder& order, int64_t n) {
  std::vector<int32_t> tokens(order.sequence_length() + 1);
  order.read_sample(n, tokens.data());
  return tokens;
}

template <class F>
std::string refusal(F make) {
  try {
    make();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::usage);
    return e.what();
  }
  return "accepted";
}

TEST(Blend, CountsAreExactAtAnyNumber) {
  const std::vector<std::vector<double>> blends = {
      {1}, {1, 1}, {0.7, 0.3}, {3, 1, 1}, {1e-9, 1}, {1, 1e-9}, {0.05, 0.5, 0.2, 0.1, 0.15}, {1e308, 1e308}};
  for (const auto& weights : blends) {
    const Blend blend(weights);
    std::vector<int64_t> served(weights.size(), 0);
    double total = 0;
    for (double w : weights) total += w / weights[0];
    for (int64_t n = 0; n < 3000; ++n) {
      ASSERT_EQ(blend.counts(n), served);
      const Blend::Draw draw = blend.draw(n);
      ASSERT_EQ(draw.index, served[draw.source]++);
      for (size_t k = 0; k < weights.size(); ++k)
        ASSERT_LE(std::abs(served[k] - (n + 1) * (weights[k] / weights[0] / total)), (k + 1) / 2.0 + 1e-6);
    }
  }
}

TEST(Blend, FarAlongItStaysExact) {
  const Blend blend(std::vector<double>{0.7, 0.2, 0.1});
  for (int64_t start : {int64_t{1'000'000'000}, int64_t{1} << 50, (int64_t{1} << 62) - 2000}) {
    std::vector<int64_t> served = blend.counts(start);
    EXPECT_EQ(served[0] + served[1] + served[2], start);
    for (int64_t n = start; n < start + 1000; ++n) {
      const Blend::Draw draw = blend.draw(n);
      ASSERT_EQ(draw.index, served[draw.source]++);
    }
    EXPECT_EQ(blend.counts(start + 1000), served);
  }
}

TEST(Blend, EqualWeightsTakeTurns) {
  const Blend blend(std::vector<double>{2, 2});
  for (int64_t n = 0; n < 10; n += 2) EXPECT_NE(blend.draw(n).source, blend.draw(n + 1).source);
}

TEST(Blend, RefusesWeightsThatAreNotPositive) {
  for (double bad :
       {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    EXPECT_NE(refusal([&] {
                Blend(std::vector<double>{1, bad});
              }).find("data source 1 has the weight"),
              std::string::npos);
  EXPECT_NE(refusal([] { Blend(std::vector<double>{}); }).find("no data source"), std::string::npos);
}

TEST(SampleOrder, SampleIsConsecutiveTokensFromAMultipleOfTheSequence) {
  const SampleOrder order(counting({1000}), one, 7, 1234);
  EXPECT_EQ(order.samples(0), 142);  // floor(999 / 7)
  std::set<int32_t> starts;
  for (int64_t n = 0; n < 142; ++n) {
    const auto tokens = sample(order, n);
    ASSERT_EQ(tokens.size(), 8u);
    EXPECT_EQ(tokens[0] % 7, 0);
    EXPECT_EQ(tokens[0], 7 * order.locate(n).sample);
    for (int i = 1; i <= 7; ++i) ASSERT_EQ(tokens[i], tokens[0] + i);
    starts.insert(tokens[0]);
  }
  EXPECT_EQ(starts.size(), 142u) << "an epoch visits each sample once";
}

TEST(SampleOrder, NumberOfSamplesAtTheBorder) {
  for (const auto& [tokens, samples] : {std::pair{8, 1}, {14, 1}, {15, 2}, {21, 2}, {22, 3}})
    EXPECT_EQ(SampleOrder(counting({tokens}), one, 7, 0).samples(0), samples) << tokens << " tokens";
}

TEST(SampleOrder, EpochsFollowEachOtherInOrdersOfTheirOwn) {
  const SampleOrder order(counting({700}), one, 7, 1);  // 99 samples
  std::vector<std::vector<int64_t>> epochs(4);
  for (int64_t n = 0; n < 4 * 99; ++n) {
    const auto place = order.locate(n);
    EXPECT_EQ(place.epoch, n / 99);
    epochs[n / 99].push_back(place.sample);
  }
  for (auto& epoch : epochs) EXPECT_EQ(std::set<int64_t>(epoch.begin(), epoch.end()).size(), 99u);
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_NE(epochs[0], epochs[3]);
}

TEST(SampleOrder, DependsOnTheSeedAndOnNothingElse) {
  const SampleOrder a(counting({7000}), one, 7, 1), b(counting({7000}), one, 7, 1),
      c(counting({7000}), one, 7, 2);
  int differ = 0;
  for (int64_t n : {900, 3, 500000000, 3, 0}) {  // any order of asking
    EXPECT_EQ(sample(a, n), sample(b, n));
    differ += sample(a, n) != sample(c, n);
  }
  EXPECT_GT(differ, 0);
}

// The order of samples is part of what a checkpoint means: these places must never change.
// They were computed by an independent program from the rules in blend.h and permutation.h.
TEST(SampleOrder, IsFrozen) {
  constexpr double weights[] = {3, 1};
  const SampleOrder order(counting({701, 351}), weights, 7, 1234);
  std::vector<int64_t> places;
  for (int64_t n : {0, 1, 2, 3, 4, 5, 1000, 1001, 1000000007}) {
    const auto place = order.locate(n);
    places.insert(places.end(), {place.source, place.epoch, place.sample});
  }
  EXPECT_EQ(places, (std::vector<int64_t>{0,  0, 41, 0,  0, 78, 1,  0, 49, 0,  0, 22,      0, 0,
                                          53, 0, 0,  23, 0, 7,  47, 0, 7,  61, 0, 7500000, 51}));
}

TEST(SampleOrder, EachSourceOfABlendHasItsOwnEpochs) {
  constexpr double weights[] = {3, 1};
  const SampleOrder order(counting({71, 71}), weights, 7, 5);  // 10 samples each
  std::vector<std::multiset<int64_t>> seen(2);
  for (int64_t n = 0; n < 40; ++n) {
    const auto place = order.locate(n);
    seen[place.source].insert(place.sample);
    EXPECT_EQ(sample(order, n)[0], 1000000 * place.source + 7 * place.sample);
  }
  for (int64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(seen[0].count(i), 3u);  // 30 draws: three epochs
    EXPECT_EQ(seen[1].count(i), 1u);
  }
}

TEST(SampleOrder, ASourceOfOneSampleRepeatsIt) {
  const SampleOrder order(counting({9}), one, 8, 5);
  for (int64_t n : {int64_t{0}, int64_t{1}, int64_t{123456789012}}) {
    EXPECT_EQ(sample(order, n).front(), 0);
    EXPECT_EQ(sample(order, n).back(), 8);
    EXPECT_EQ(order.locate(n).epoch, n);
  }
}

TEST(SampleOrder, ValidationReadsInOrder) {
  const SampleOrder order(counting({71}), one, 7, 5, EpochOrder::sequential);
  for (int64_t n = 0; n < 25; ++n) EXPECT_EQ(sample(order, n)[0], 7 * (n % 10));
}

TEST(SampleOrder, OpensTheSourcesOfTheJobFile) {
  const test::TemporaryFolder folder;
  const std::string a = folder.write("a.txt", "abcdefghi"), b = folder.write("b.txt", "ABCDEFGHI");
  const SampleOrder order = open_samples({{a, 1}, {b, 1}}, 8, 5);
  std::set<std::vector<int32_t>> seen{sample(order, 0), sample(order, 1)};
  EXPECT_EQ(seen, (std::set<std::vector<int32_t>>{{'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i'},
                                                  {'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'I'}}));
  EXPECT_NE(refusal([&] {
              open_samples({{a, 1}, {b, 1}}, 9, 5);
            }).find(a + " has 9 tokens"),
            std::string::npos);
  EXPECT_NE(refusal([&] { open_samples({{a, 1}, {b, 0}}, 8, 5); }).find("weight 0"), std::string::npos);
}

TEST(SampleOrder, TooFewTokensAreRefusedWithTheirNumber) {
  const std::string message = refusal([] { SampleOrder(counting({8}), one, 8, 0); });
  EXPECT_NE(message.find("counting tokens has 8 tokens"), std::string::npos) << message;
  EXPECT_NE(message.find("sequence_length + 1 = 9"), std::string::npos) << message;
  EXPECT_NE(message.find("to 7 or less"), std::string::npos) << message;
}

}  // namespace
}  // namespace triax
