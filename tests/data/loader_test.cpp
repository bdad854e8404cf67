#include "data/loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>

#include "temporary_file.h"

namespace triax {
namespace {

using test::counting;
using test::CountingTokens;

constexpr double one[] = {1.0};

std::vector<int32_t> expected(const SampleOrder& order, int64_t first, int64_t rows) {
  const int64_t width = order.sequence_length() + 1;
  std::vector<int32_t> all(rows * width);
  for (int64_t r = 0; r < rows; ++r) order.read_sample(first + r, all.data() + r * width);
  return all;
}

std::vector<int32_t> copy(std::span<const int32_t> tokens) {
  return {tokens.begin(), tokens.end()};
}

// What a test wants to know about reads, and how to disturb them.
class ProbedTokens final : public TokenSource {
 public:
  explicit ProbedTokens(int64_t tokens) : inner_(tokens) {}
  int64_t tokens() const override { return inner_.tokens(); }
  void read(int64_t first, std::span<int32_t> out) const override {
    if (first == fail_at) throw std::runtime_error("disk on fire");
    if (++reads > fast_reads) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    inner_.read(first, out);
  }
  int64_t vocabulary() const override { return inner_.vocabulary(); }
  const std::string& name() const override { return inner_.name(); }
  std::string fingerprint() const override { return inner_.fingerprint(); }

  mutable std::atomic<int> reads{0};
  int64_t fail_at = -1;
  int fast_reads = 1 << 30;

 private:
  CountingTokens inner_;
};

TEST(BatchRows, CutsTheGlobalBatch) {
  const BatchRows rows = BatchRows::of_data_rank(12, 2, 4);
  EXPECT_EQ(rows.global_batch, 12);
  EXPECT_EQ(rows.first_row, 6);
  EXPECT_EQ(rows.rows, 3);
  EXPECT_ANY_THROW(BatchRows::of_data_rank(12, 0, 5));
  EXPECT_ANY_THROW(BatchRows::of_data_rank(12, 4, 4));
}

// The ranks' rows, one behind the other, are the samples of the step, whatever the data degree; steps cross
// epochs (99 samples against batches of 12) without a seam.
TEST(Loader, RowsOfAllRanksAreTheStepsSamples) {
  const SampleOrder order(counting({700}), one, 7, 3);
  for (int data_ranks : {1, 2, 3, 12}) {
    std::vector<std::unique_ptr<Loader>> loaders;
    for (int d = 0; d < data_ranks; ++d)
      loaders.push_back(std::make_unique<Loader>(order, BatchRows::of_data_rank(12, d, data_ranks)));
    for (int64_t consumed = 0; consumed < 12 * 20; consumed += 12) {
      std::vector<int32_t> all;
      for (auto& loader : loaders) {
        const auto rows = loader->next(consumed);
        all.insert(all.end(), rows.begin(), rows.end());
      }
      ASSERT_EQ(all, expected(order, consumed, 12)) << data_ranks << " data ranks";
    }
  }
}

TEST(Loader, ResumesAnywhereAndWithAnotherBatch) {
  const SampleOrder order(counting({7000}), one, 7, 3);
  Loader loader(order, BatchRows::of_data_rank(8, 1, 2));
  for (int64_t first :
       {int64_t{0}, int64_t{8}, int64_t{1'000'000'000'000}, int64_t{4}, int64_t{4}, int64_t{12}})
    EXPECT_EQ(copy(loader.next(first)), expected(order, first + 4, 4)) << "from sample " << first;
}

TEST(Loader, TheBatchStaysUntilTheNextOneIsAskedFor) {
  const SampleOrder order(counting({7000}), one, 7, 3);
  Loader loader(order, BatchRows::of_data_rank(4, 0, 1));
  const auto held = loader.next(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the next batch is read meanwhile
  EXPECT_EQ(copy(held), expected(order, 0, 4));
}

TEST(Loader, ReadsAhead) {
  auto tokens = std::make_shared<ProbedTokens>(7000);
  const SampleOrder order({tokens}, one, 7, 3);
  Loader loader(order, BatchRows::of_data_rank(4, 0, 1));
  loader.next(0);
  for (int tries = 0; tokens->reads < 8 && tries < 2000; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(tokens->reads, 8) << "one batch handed out, one prepared, no more";
  loader.next(4);
  EXPECT_GE(tokens->reads, 8);
}

TEST(Loader, AnErrorComesOutAtItsStepAndTheLoaderLivesOn) {
  auto tokens = std::make_shared<ProbedTokens>(71);  // 10 samples, in order
  tokens->fail_at = 7 * 5;
  const SampleOrder order({tokens}, one, 7, 3, EpochOrder::sequential);
  Loader loader(order, BatchRows::of_data_rank(2, 0, 1));
  EXPECT_EQ(copy(loader.next(0)), expected(order, 0, 2));
  EXPECT_EQ(copy(loader.next(2)), expected(order, 2, 2));
  try {
    loader.next(4);
    FAIL() << "the failed read was not reported";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "disk on fire");
  }
  EXPECT_EQ(copy(loader.next(6)), expected(order, 6, 2));
}

TEST(Loader, StopsInTheMiddleOfABatch) {
  auto tokens = std::make_shared<ProbedTokens>(70001);
  tokens->fast_reads = 1000;
  const SampleOrder order({tokens}, one, 7, 3);
  { const Loader unused(order, BatchRows::of_data_rank(4, 0, 1)); }
  const auto start = std::chrono::steady_clock::now();
  {
    Loader loader(order, BatchRows::of_data_rank(1000, 0, 1));
    loader.next(0);  // the batch after it would take 20 s
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(Loader, SaysWhatItHolds) {
  EXPECT_EQ(Loader::bytes(BatchRows::of_data_rank(8, 0, 2), 15), 2 * 4 * 16 * 4);
}

}  // namespace
}  // namespace triax
