#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "parallel/param_store.h"

namespace triax {
namespace {

Init normal(float stddev) {
  return {Init::Kind::normal, stddev};
}

TEST(Localise, VocabularyRowsOfTheIssue) {
  const Grid grid({{"tp", 8}});
  const ParamSpec table{"embed.tokens.weight", {102400, 8192}, {{0, "tp", 0}}, normal(0.02F), true};
  for (int rank = 0; rank < 8; ++rank) {
    const LocalParam local = localise(table, grid, rank);
    EXPECT_EQ(local.memory, (Shape{12800, 8192}));
    EXPECT_EQ(local.box, (Box{{12800 * rank, 0}, {12800, 8192}}));
    EXPECT_EQ(local.copies, 1);
  }
}

TEST(Localise, OddVocabularyIsPaddedInMemoryOnly) {
  const Grid grid({{"tp", 4}});
  int64_t rows = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const LocalParam local = localise({"table", {5, 3}, {{0, "tp", 0}}}, grid, rank);
    EXPECT_EQ(local.memory[0], 2);
    EXPECT_EQ(local.box.offset[0], std::min(5, 2 * rank));
    rows += local.box.extent[0];
  }
  EXPECT_EQ(rows, 5);  // 2, 2, 1, 0
}

TEST(Localise, KeyValueHeadsAreCopiedWhenFewerThanRanks) {
  const Grid grid({{"tp", 4}});
  const ParamSpec k{"k", {2 * 6, 5}, {{0, "tp", 2}}};
  for (int rank = 0; rank < 4; ++rank) {
    const LocalParam local = localise(k, grid, rank);
    EXPECT_EQ(local.box, (Box{{6 * (rank / 2), 0}, {6, 5}}));
    EXPECT_EQ(local.copy, rank % 2);
    EXPECT_EQ(local.copies, 2);
  }
}

TEST(Localise, WhatIsNotCutIsCopied) {
  const Grid grid({{"tp", 3}, {"dp", 2}});
  const LocalParam local = localise({"norm.weight", {7}}, grid, 5);
  EXPECT_EQ(local.copy, 2);
  EXPECT_EQ(local.copies, 3);
  EXPECT_EQ(local.box, whole({7}));
}

// The union of all ranks' initial values is the same tensor on every grid, bit for bit, with the asked-for
// statistics.
TEST(ParamStore, InitialValuesDoNotDependOnTheGrid) {
  const Shape global{37, 24};
  std::vector<float> first;
  for (int t : {1, 2, 3, 4}) {
    const Grid grid({{"tp", t}});
    std::vector<float> all(static_cast<size_t>(global.numel()), NAN), columns = all;
    for (int rank = 0; rank < t; ++rank) {
      const auto device = make_cpu_device(2);
      ParamStore params(grid, rank, *device);
      params.declare({{"rows", global, {{0, "tp", 0}}, normal(0.5F), true}});
      params.declare({{"columns", global, {{1, "tp", 0}}, normal(0.5F), true}});
      params.commit();
      params.initialise(7);
      for (const auto& entry : params.entries())
        copy_box(entry.box, params.weights().f32() + entry.offset, whole(global),
                 entry.spec.name == "rows" ? all.data() : columns.data());
    }
    if (t == 1) {
      double sum = 0, squares = 0;
      for (float v : all) sum += v, squares += v * v;
      EXPECT_NEAR(sum / 888, 0, 0.06);
      EXPECT_NEAR(std::sqrt(squares / 888), 0.5, 0.05);
      EXPECT_NE(all, columns);  // another name is another stream
      first = all;
    }
    EXPECT_EQ(all, first) << t;
    for (float v : columns) EXPECT_FALSE(std::isnan(v));
  }
}

TEST(ParamStore, SideBySideParametersAreOneTensor) {
  const Grid grid({{"tp", 2}});
  const auto device = make_cpu_device(1);
  ParamStore params(grid, 1, *device);
  const int group =
      params.declare({{"q", {8, 4}, {{0, "tp", 0}}, normal(1)}, {"k", {4, 4}, {{0, "tp", 0}}, normal(1)}});
  params.commit();
  params.initialise(1);
  EXPECT_EQ(params.weight(group).shape(), (Shape{4 + 2, 4}));
  EXPECT_EQ(params.entries()[1].offset, params.entries()[0].offset + 16);
  EXPECT_EQ(params.entries()[1].box, (Box{{2, 0}, {2, 4}}));
}

TEST(ParamStore, TiedWeightHasOneWeightAndTwoGradients) {
  const Grid grid({{"tp", 1}});
  const auto device = make_cpu_device(1);
  ParamStore params(grid, 0, *device);
  const ParamSpec table{"table", {6, 4}, {{0, "tp", 0}}, normal(1), true};
  ParamSpec again = table;
  again.tied = true;
  const int embedding = params.declare({table}), head = params.declare({again});
  params.commit();
  params.initialise(3);
  EXPECT_EQ(params.weight(embedding).raw(), params.weight(head).raw());
  EXPECT_NE(params.grad(embedding).raw(), params.grad(head).raw());
  EXPECT_TRUE(params.entries()[0].counted);
  EXPECT_FALSE(params.entries()[1].counted);
}

TEST(ParamStore, BucketsAreCutEvenlyAndHoldEverything) {
  const Grid grid({{"tp", 1}, {"dp", 3}});
  const auto device = make_cpu_device(1);
  ParamStore params(grid, 0, *device, 3, 100);
  for (int i = 0; i < 5; ++i) params.declare({{"p" + std::to_string(i), {7, 11}, {}, normal(1)}});
  params.commit();
  int64_t end = 0;
  for (const auto& bucket : params.buckets()) {
    EXPECT_EQ(bucket.begin, end);
    EXPECT_EQ((bucket.end - bucket.begin) % (3 * 16), 0);
    end = bucket.end;
  }
  EXPECT_EQ(end, params.elements());
  EXPECT_GT(params.buckets().size(), 1U);
  for (const auto& entry : params.entries()) EXPECT_LE(entry.offset + entry.box.numel(), end);
}

TEST(ParamStore, DeclaringAfterCommitIsAFault) {
  const Grid grid({{"tp", 1}});
  const auto device = make_cpu_device(1);
  ParamStore params(grid, 0, *device);
  params.commit();
  EXPECT_THROW(params.declare({{"late", {1}}}), Error);
}

}  // namespace
}  // namespace triax
