#include "optim/zero.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "optim/optimizer.h"

namespace triax {
namespace {

ParamStore& declare(ParamStore& params) {
  params.declare({{"q", {13, 7}, {{0, "tp", 0}}}, {"k", {5, 7}, {{0, "tp", 0}}}});
  params.declare({{"norm", {7}}});
  params.declare({{"out", {9, 12}, {{1, "tp", 0}}}});
  params.commit();
  return params;
}

// With groups of 1, 2, 3 and 6 of 6 data ranks: every element of every parameter is reduced by one rank, and
// updated by one rank of each group, which is among those that reduced it or have it from a replica.
TEST(ZeroPartition, SlicesCoverEveryParameterOnce) {
  constexpr int data = 6;
  const Grid grid({{"tp", 2}, {"dp", data}});
  const auto device = make_cpu_device(1);
  ParamStore params(grid, 1, *device, data, 64);
  declare(params);
  EXPECT_GT(params.buckets().size(), 1U);
  for (int step : {1, 2, 3, 6}) {
    std::multiset<int64_t> seen;
    for (int first = 0; first < step; ++first) {
      const ZeroPartition partition(params, data, first, step);
      EXPECT_EQ(partition.elements() * step, params.elements());
      EXPECT_EQ(partition.slices().size(), params.buckets().size() * (step == 1 ? 1 : data / step));
      std::set<int64_t> places;
      for (const ParamRange& piece : partition.pieces()) {
        const auto& entry = params.entries()[static_cast<size_t>(piece.entry)];
        EXPECT_EQ(piece.first_in_box, piece.begin - entry.offset);
        for (int64_t i = piece.begin; i < piece.end; ++i) {
          seen.insert(i);
          const int64_t place = partition.local(i);
          EXPECT_TRUE(place >= 0 && place < partition.elements());
          EXPECT_TRUE(places.insert(place).second) << "two elements at " << place;
        }
      }
      for (int rank = first; rank < data; rank += step) {
        const ZeroPartition reduced(params, data, rank, data);
        for (const ParamRange& piece : reduced.pieces())
          EXPECT_NO_THROW(partition.local(piece.begin))
              << "rank " << rank << " reduces what it does not update";
      }
    }
    int64_t expected = 0;
    for (const auto& entry : params.entries()) {
      expected += entry.box.numel();
      for (int64_t i = 0; i < entry.box.numel(); ++i) EXPECT_EQ(seen.count(entry.offset + i), 1U);
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), expected);
  }
}

TEST(ZeroPartition, ForeignElementsAreRefused) {
  const Grid grid({{"dp", 2}});
  const auto device = make_cpu_device(1);
  ParamStore params(grid, 0, *device, 2, 64);
  declare(params);
  const ZeroPartition first(params, 2, 0, 2);
  EXPECT_NO_THROW(first.local(params.buckets()[0].begin));
  EXPECT_THROW(first.local(params.buckets()[0].end - 1), Error);
}

}  // namespace
}  // namespace triax
