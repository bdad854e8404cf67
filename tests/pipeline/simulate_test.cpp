#include "pipeline/simulate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "pipeline/schedule.h"

namespace triax {
namespace {

struct Published {
  int micro_batches;
  ActionTimes times;
  double one_f_one_b, zb_h1;
};

// Bubble rates of Qi et al. 2024, 8 stages, from the measured times (ms) of the same table.
const Published published[] = {
    {24, {18.522, 18.086, 9.337, 0.601}, 0.2431, 0.1585},
    {32, {18.513, 18.086, 9.331, 0.626}, 0.1985, 0.1242},
    {64, {18.546, 18.097, 9.321, 0.762}, 0.1240, 0.0674},
    {24, {29.718, 29.444, 19.927, 0.527}, 0.2347, 0.1323},
    {32, {29.802, 29.428, 19.530, 0.577}, 0.1898, 0.1045},
    {64, {29.935, 29.621, 19.388, 0.535}, 0.1091, 0.0554},
};

double to_four_decimals(double x) {
  return std::round(x * 1e4) / 1e4;
}

TEST(Simulate, PublishedBubblesOf1f1b) {
  for (const Published& p : published) {
    const Timeline t = simulate(make_schedule({"1f1b", 8, 1, p.micro_batches}), p.times);
    EXPECT_NEAR(to_four_decimals(t.bubble), p.one_f_one_b, 1e-9) << p.micro_batches << " micro-batches";
  }
}

// Two stages, of which the second takes twice as long, by hand:
//   stage 0  F0 F1 .  .  .  .  .  B0 .  B1
//   stage 1  .  F0 -- F1 -- B0 -- B1 -- .
TEST(Simulate, UnevenStages) {
  const Schedule s = make_schedule({"gpipe", 2, 1, 2});
  const Timeline t = simulate(s, {{1, 0.5, 0.5, 0}, {2, 1, 1, 0}});
  EXPECT_DOUBLE_EQ(t.makespan, 10);
  EXPECT_DOUBLE_EQ(t.cost, 10);
  EXPECT_DOUBLE_EQ(t.stage_bubbles[0], 0.6);
  EXPECT_DOUBLE_EQ(t.stage_bubbles[1], 0.2);
  EXPECT_DOUBLE_EQ(t.bubble, 0.4);
  EXPECT_THROW(simulate(s, std::vector<ActionTimes>(3)), Error);
}

TEST(Simulate, MeanTimesAreThoseThatWereSimulated) {
  const std::vector<ActionTimes> parts{{1, 2, 3, 0.5}, {4, 5, 6, 0.5}, {7, 8, 9, 0.5}};
  Timeline timeline = simulate(make_schedule({"zb-h1", 3, 1, 4}), parts);
  for (int stage = 1; stage < 3; ++stage)  // clocks that do not agree
    for (Span& span : timeline.stages[stage]) span.start += 0.25 / stage, span.end += 0.25 / stage;
  const std::vector<ActionTimes> mean = mean_times(timeline);
  ASSERT_EQ(mean.size(), parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_DOUBLE_EQ(mean[i].forward, parts[i].forward);
    EXPECT_DOUBLE_EQ(mean[i].backward_input, parts[i].backward_input);
    EXPECT_DOUBLE_EQ(mean[i].backward_weight, parts[i].backward_weight);
    EXPECT_DOUBLE_EQ(mean[i].message, parts[i].message);
  }
  EXPECT_DOUBLE_EQ(mean_times(simulate(make_schedule({"1f1b", 3, 1, 4}), parts))[1].backward_input, 11);
  EXPECT_DOUBLE_EQ(mean_times(simulate(make_schedule({"gpipe", 1, 1, 4}), {{1, 1, 1, 9}}))[0].message, 0);
}

TEST(Simulate, PublishedBubblesOfZeroBubbleH1) {
  for (const Published& p : published) {
    const Timeline t = simulate(make_schedule({"zb-h1", 8, 1, p.micro_batches}), p.times);
    EXPECT_NEAR(to_four_decimals(t.bubble), p.zb_h1, 1e-9) << p.micro_batches << " micro-batches";
  }
}

}  // namespace
}  // namespace triax
