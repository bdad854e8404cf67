#include "bench/startup.h"

#include <gtest/gtest.h>

namespace triax {
namespace {

TEST(StartupFit, FindsTheLineAndNeverGoesBelowZero) {
  StartupPhase line{"line", {0.5 + 0.25 * 1, 0.5 + 0.25 * 2, 0.5 + 0.25 * 8}};
  fit(line, {1, 2, 8});
  EXPECT_NEAR(line.fixed, 0.5, 1e-12);
  EXPECT_NEAR(line.per_rank, 0.25, 1e-12);
  EXPECT_NEAR(line.at(10000), 2500.5, 1e-8);
  StartupPhase falling{"falling", {3, 1}};
  fit(falling, {1, 2});
  EXPECT_EQ(falling.per_rank, 0);
  EXPECT_EQ(falling.fixed, 2);
  StartupPhase steep{"steep", {1, 6}};  // the line meets 0 between them
  fit(steep, {1, 2});
  EXPECT_EQ(steep.fixed, 0);
  EXPECT_NEAR(steep.per_rank, 13.0 / 5, 1e-12);
  StartupPhase single{"single", {2}};
  fit(single, {4});
  EXPECT_EQ(single.fixed, 2);
}

}  // namespace
}  // namespace triax
