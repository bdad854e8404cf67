#include "pipeline/simulate.h"

#include <gtest/gtest.h>

#include <cmath>

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

TEST(Simulate, PublishedBubblesOfZeroBubbleH1) {
  for (const Published& p : published) {
    const Timeline t = simulate(make_schedule({"zb-h1", 8, 1, p.micro_batches}), p.times);
    EXPECT_NEAR(to_four_decimals(t.bubble), p.zb_h1, 1e-9) << p.micro_batches << " micro-batches";
  }
}

}  // namespace
}  // namespace triax
