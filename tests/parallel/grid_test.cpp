#include "parallel/grid.h"

#include <gtest/gtest.h>

#include <set>

#include "core/error.h"

namespace triax {
namespace {

TEST(Grid, ExamplesOfTheHeader) {
  const Grid grid({{"tp", 2}, {"dp", 2}, {"pp", 2}});
  EXPECT_EQ(grid.size(), 8);
  EXPECT_EQ(grid.coordinate(5, "tp"), 1);
  EXPECT_EQ(grid.coordinate(5, "dp"), 0);
  EXPECT_EQ(grid.coordinate(5, "pp"), 1);
  EXPECT_EQ(grid.members(5, {"tp"}), (std::vector<int>{4, 5}));
  EXPECT_EQ(grid.members(5, {"dp"}), (std::vector<int>{5, 7}));
  EXPECT_EQ(grid.members(5, {"tp", "dp"}), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(grid.members(5, {"tp", "dp", "pp"}).size(), 8U);
  EXPECT_EQ(grid.neighbour(5, "pp", -1), 1);
  EXPECT_EQ(grid.neighbour(5, "pp", 1), 1);
}

TEST(Grid, TensorRanksAreAdjacent) {
  const Grid grid({{"tp", 4}, {"dp", 3}, {"pp", 2}});
  for (int rank = 0; rank < grid.size(); ++rank) {
    const auto members = grid.members(rank, {"tp"});
    for (size_t i = 1; i < members.size(); ++i) EXPECT_EQ(members[i], members[i - 1] + 1);
  }
}

TEST(Grid, GroupsOfAnAxisPartitionTheRanks) {
  const Grid grid({{"tp", 2}, {"cp", 3}, {"dp", 5}, {"pp", 7}});
  for (const GridAxis& axis : grid.axes()) {
    std::set<std::vector<int>> groups;
    for (int rank = 0; rank < grid.size(); ++rank) groups.insert(grid.members(rank, {axis.name}));
    EXPECT_EQ(static_cast<int>(groups.size()) * axis.size, grid.size());
    std::set<int> all;
    for (const auto& g : groups) all.insert(g.begin(), g.end());
    EXPECT_EQ(static_cast<int>(all.size()), grid.size());
  }
}

TEST(Grid, WithAndCoordinateAgree) {
  const Grid grid({{"tp", 3}, {"dp", 4}, {"pp", 5}});
  for (int rank = 0; rank < grid.size(); ++rank)
    for (const GridAxis& axis : grid.axes())
      for (int c = 0; c < axis.size; ++c) {
        const int other = grid.with(rank, axis.name, c);
        EXPECT_EQ(grid.coordinate(other, axis.name), c);
        EXPECT_EQ(grid.with(other, axis.name, grid.coordinate(rank, axis.name)), rank);
      }
}

TEST(Grid, UnknownAxesAreTrivialAndBadOnesRefused) {
  const Grid grid({{"tp", 2}});
  EXPECT_EQ(grid.size("ep"), 1);
  EXPECT_EQ(grid.coordinate(1, "ep"), 0);
  EXPECT_EQ(grid.members(1, {"ep"}), (std::vector<int>{1}));
  EXPECT_THROW(Grid({{"tp", 0}}), Error);
  EXPECT_THROW(grid.coordinate(2, "tp"), Error);
  EXPECT_THROW(grid.with(0, "tp", 2), Error);
}

TEST(Grid, TableNamesEveryGroup) {
  const std::string table = group_table(Grid({{"tp", 2}, {"dp", 2}, {"pp", 2}}));
  EXPECT_NE(table.find("tp 2 x dp 2 x pp 2 (8 ranks)"), std::string::npos);
  EXPECT_NE(table.find("5 7"), std::string::npos);
}

}  // namespace
}  // namespace triax
