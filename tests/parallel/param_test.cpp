#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <span>

#include "parallel/param_store.h"
#include "parallel/table_slots.h"

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

// A table that is looked up and multiplied with on one rank, [6, 4].
struct TiedTable {
  std::unique_ptr<Device> device = make_cpu_device(1);
  Grid grid{{{"tp", 1}}};
  ParamStore params;
  int lookups, between, products;

  explicit TiedTable(int zero_shards = 1, int64_t bucket_elements = ParamStore::usual_bucket)
      : params(grid, 0, *device, zero_shards, bucket_elements) {
    ParamSpec table{"table", {6, 4}, {{0, "tp", 0}}, normal(1), true};
    lookups = params.declare({table}, ParamStore::GradKind::lookups);
    between = params.declare({{"between", {3}, {}, {}}});
    table.tied = true;
    products = params.declare({table}, ParamStore::GradKind::products);
  }
};

TEST(ParamStore, TiedWeightHasOneWeightAndTwoGradients) {
  TiedTable tied;
  ParamStore& params = tied.params;
  params.commit();
  params.initialise(3);
  EXPECT_EQ(params.weight(tied.lookups).raw(), params.weight(tied.products).raw());
  EXPECT_TRUE(params.entries()[0].counted);
  EXPECT_FALSE(params.entries()[2].counted);
  const auto [of_lookups, by_slot] = params.lookup_grad(tied.lookups);
  EXPECT_FALSE(by_slot);
  EXPECT_EQ(of_lookups.shape(), (Shape{6, 4}));
  const auto apart = params.lookups_apart();
  ASSERT_TRUE(apart);
  EXPECT_EQ(apart->table, &params.entries()[0]);
  EXPECT_EQ(apart->grad.raw(), of_lookups.raw());
  EXPECT_NE(of_lookups.raw(), params.primary_grad(params.entries()[0]).raw());
  EXPECT_EQ(params.grad(tied.products).raw(), params.primary_grad(params.entries()[0]).raw());
}

TEST(ParamStore, TiedTableKeepsRoomForLookedUpRowsAlone) {
  TiedTable tied;
  tied.params.commit(true, 5);
  const auto [grad, by_slot] = tied.params.lookup_grad(tied.lookups);
  EXPECT_TRUE(by_slot);
  EXPECT_EQ(grad.shape(), (Shape{5, 4}));
}

// Whoever asks first for a gradient in a step finds it clear, but for what a product overwrites; until then
// its memory is left alone, padding and all.
TEST(ParamStore, GradientsAreClearedWhenTheyAreAskedFor) {
  TiedTable tied;
  ParamStore& params = tied.params;
  params.commit(true, 5);
  for (int step = 0; step < 2; ++step) {
    std::fill_n(params.grads().f32(), params.elements(), 7.0F);
    std::fill_n(params.lookup_grad(tied.lookups).into.f32(), 20, 7.0F);
    params.zero_grads();
    const auto expect_cleared_from = [&](int64_t first) {
      for (int64_t i = 0; i < params.elements(); ++i)
        EXPECT_EQ(params.grads().f32()[i], i < first ? 7 : 0) << i;
    };
    expect_cleared_from(params.elements());
    for (const float g : std::span(params.lookup_grad(tied.lookups).into.f32(), 20)) EXPECT_EQ(g, 0);
    expect_cleared_from(params.elements());
    params.grad(tied.between).f32()[0] = 7;
    EXPECT_EQ(params.grad(tied.between).f32()[0], 7) << "cleared once more";
    params.grad(tied.between).f32()[0] = 0;
    expect_cleared_from(32);
    EXPECT_EQ(params.grad_sum(tied.products).beta, 0);
    EXPECT_EQ(params.grad_sum(tied.products).beta, 1);
    expect_cleared_from(24);
  }
}

TEST(ParamStore, SettlingClearsWhatNobodyHasAskedFor) {
  TiedTable tied;
  ParamStore& params = tied.params;
  params.commit(true, 5);
  std::fill_n(params.grads().f32(), params.elements(), 7.0F);
  params.zero_grads();
  params.grad_sum(tied.products).into.f32()[0] = 5;  // asked for, and written
  params.settle_grads(2, 3);
  EXPECT_EQ(params.grads().f32()[0], 5);
  EXPECT_EQ(params.grads().f32()[32], 7) << "entry 1 is not among [2, 3)";
  params.settle_grads(1, 2);
  for (int64_t i = 32; i < params.elements(); ++i) EXPECT_EQ(params.grads().f32()[i], 0) << i;
  params.grads().f32()[32] = 5;
  params.settle_grads(0, 3);
  EXPECT_EQ(params.grads().f32()[32], 5) << "cleared once more";
  EXPECT_EQ(params.grads().f32()[0], 5);
}

// What is lent begins behind all that the head's product clears, and ends where the entry's gradient begins.
TEST(ParamStore, LendsWhatTheModulesBeforeAnEntryWriteLater) {
  for (const int zero_shards : {1, 3, 8})
    for (const int64_t bucket : {int64_t{1}, ParamStore::usual_bucket}) {
      TiedTable tied(zero_shards, bucket);
      ParamStore& params = tied.params;
      params.commit(true, 5);
      std::fill_n(params.grads().f32(), params.elements(), 7.0F);
      params.zero_grads();
      const auto [begin, end] = params.lendable(1);
      const auto [all, last] = params.lendable(static_cast<int>(params.entries().size()));
      EXPECT_EQ(begin, all);
      EXPECT_LE(begin, end);
      EXPECT_EQ(end, static_cast<size_t>(params.entries()[1].offset) * sizeof(float));
      EXPECT_EQ(last, static_cast<size_t>(params.elements()) * sizeof(float));
      params.grad_sum(tied.products);
      for (size_t i = begin / sizeof(float); i < last / sizeof(float); ++i)
        EXPECT_EQ(params.grads().f32()[i], 7) << i << ", " << zero_shards << " shards, buckets of " << bucket;
    }
}

TEST(ParamStore, WithoutATiedTableLendsFromTheBeginning) {
  const Grid grid({{"tp", 1}});
  const auto device = make_cpu_device(1);
  ParamStore params(grid, 0, *device);
  params.declare({{"a", {3, 4}}});
  params.declare({{"b", {5}}});
  params.commit();
  EXPECT_EQ(params.lendable(0), (std::pair<size_t, size_t>(0, 0)));
  EXPECT_EQ(params.lendable(1), (std::pair<size_t, size_t>(0, 64)));
  EXPECT_EQ(params.lendable(2), (std::pair<size_t, size_t>(0, 128)));
}

TEST(ParamStore, WhatIsTiedIsLookedUpFirst) {
  TiedTable tied;
  ParamSpec again{"between", {3}, {}, {}};
  again.tied = true;
  EXPECT_THROW(tied.params.declare({again}), Error);
  EXPECT_THROW(tied.params.declare({again}, ParamStore::GradKind::products), Error);
}

TEST(TableSlots, NumberTheRowsOfThisRankAsTheyAppear) {
  TableSlots slots(10, 4);
  for (int again = 0; again < 2; ++again) {
    const std::vector<int32_t> ids{12, 9, 10, 12, 14, 13, 10};
    std::vector<int32_t> of_ids(7), slot_ids(5, 99);
    slots.assign(ids.data(), 7, of_ids.data(), slot_ids.data(), 5);
    EXPECT_EQ(of_ids, (std::vector<int32_t>{0, -1, 1, 0, -1, 2, 1}));
    EXPECT_EQ(slot_ids, (std::vector<int32_t>{12, 10, 13, -1, -1}));
  }
}

TEST(TableSlots, TooFewAreAFault) {
  TableSlots slots(0, 4);
  const std::vector<int32_t> ids{0, 1, 2};
  std::vector<int32_t> of_ids(3), slot_ids(2);
  EXPECT_THROW(slots.assign(ids.data(), 3, of_ids.data(), slot_ids.data(), 2), Error);
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
