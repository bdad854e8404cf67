#include "engine/stragglers.h"

#include <gtest/gtest.h>

#include "comm/local_ranks.h"

namespace triax {
namespace {

using Window = std::vector<RankTimes>;

Window window(const std::vector<double>& compute) {
  Window times;
  for (const double c : compute) times.push_back({c, 10 - c});
  return times;
}

TEST(Stragglers, OneThatStaysSlowIsNamedOnceAndNoOther) {
  // Stage 0 takes half the time of stage 1, which makes nobody of stage 1 slow.
  StragglerWatch watch({0, 0, 0, 0, 1, 1, 1, 1}, 1.5, 3);
  const Window usual = window({3, 3.1, 2.9, 3, 6, 6.1, 5.9, 6}), slow = window({3, 3.1, 5.9, 3, 6, 6, 6, 6});
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(watch.add(usual, 10).empty());
  // Two windows are no habit.
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(watch.add(slow, 10).empty());
  EXPECT_TRUE(watch.add(usual, 10).empty());
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(watch.add(slow, 10).empty());
  const auto found = watch.add(slow, 10);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 2);
  EXPECT_TRUE(found[0].slow);
  EXPECT_EQ(found[0].compute, 5.9);
  EXPECT_EQ(found[0].usual, 3);
  // Once an episode; it ends as it began.
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(watch.add(slow, 10).empty());
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(watch.add(usual, 10).empty());
  const auto better = watch.add(usual, 10);
  ASSERT_EQ(better.size(), 1u);
  EXPECT_EQ(better[0].rank, 2);
  EXPECT_FALSE(better[0].slow);
}

TEST(Stragglers, OfTwoTheSlowOneIsNamed) {
  StragglerWatch watch({0, 0}, 1.5, 1);
  const auto found = watch.add(window({3, 6}), 10);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 1);
}

TEST(Stragglers, WhatHoldsNobodyUpIsNotTold) {
  StragglerWatch watch({0, 0, 0, 1}, 1.5, 1);
  EXPECT_TRUE(watch.add(window({0.1, 0.9, 0.1, 0.1}), 10).empty()) << "less than a tenth of the window";
  EXPECT_TRUE(watch.add(window({1, 1, 1, 9}), 10).empty()) << "alone in its stage";
  StragglerWatch off({0, 0}, 0, 1);
  EXPECT_TRUE(off.add(window({1, 9}), 10).empty());
}

TEST(Stragglers, RanksShareTheirTimes) {
  run_local_ranks(3, {}, [](Communicator& world, int rank) {
    const auto times = share_times(world, {1.0 + rank, 0.5 * rank});
    ASSERT_EQ(times.size(), 3u);
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(times[static_cast<size_t>(r)].compute, 1.0 + r);
      EXPECT_EQ(times[static_cast<size_t>(r)].wait, 0.5 * r);
    }
    const TimesSummary summary = summary_of(times);
    EXPECT_EQ(summary.slowest_rank, 2);
    EXPECT_EQ(summary.compute_max, 3);
    EXPECT_EQ(summary.compute_median, 2);
  });
}

}  // namespace
}  // namespace triax
