// A grid computes what one rank computes (DESIGN section 7, first row), and options that must not matter
// change no bit.

#include <gtest/gtest.h>

#include <algorithm>

#include "support/sanitizer.h"
#include "support/small_job.h"
#include "support/training.h"

namespace triax::test {
namespace {

constexpr int64_t steps = sanitized ? 3 : 20;

RunConfig job(Architecture architecture) {
  RunConfig config = small_job(architecture, steps);
  config.lr_schedule.warmup_steps = std::min<int64_t>(4, steps - 1);
  return config;
}

RunConfig on_grid(RunConfig config, int tensor, int pipeline, int data, int zero = 1,
                  const std::string& schedule = "1f1b") {
  config.parallel.tensor = tensor;
  config.parallel.pipeline = pipeline;
  config.parallel.data = data;
  config.parallel.zero_stage = zero;
  config.parallel.schedule = schedule;
  return config;
}

std::string name_of(const RunConfig& c) {
  return fmt::format("tensor {} pipeline {} data {} zero {} {} chunks {}", c.parallel.tensor,
                     c.parallel.pipeline, c.parallel.data, c.parallel.zero_stage, c.parallel.schedule,
                     c.parallel.virtual_stages);
}

// The same job under each schedule that `pipeline` stages of it allow; interleaved with every number of
// chunks.
std::vector<RunConfig> all_schedules(RunConfig config, int pipeline) {
  config.parallel.pipeline = pipeline;
  std::vector<RunConfig> list;
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    config.parallel.schedule = schedule;
    list.push_back(config);
  }
  config.parallel.schedule = "interleaved";
  const TrainingConfig& t = config.training;
  if (t.global_batch_size / (t.micro_batch_size * config.parallel.data) % pipeline != 0) return list;
  for (int chunks = 2; chunks * pipeline <= config.model.num_hidden_layers; ++chunks) {
    config.parallel.virtual_stages = chunks;
    list.push_back(config);
  }
  return list;
}

// One tensor and data degree: the base grid against one rank, every pipeline degree and ZeRO stage bit for
// bit against the base.
void check_grids(Architecture architecture, const std::vector<int>& tensors, const std::vector<int>& datas,
                 const std::vector<int>& pipelines, const std::vector<int>& zeros) {
  const RunConfig one = job(architecture);
  const Batches batches = random_batches(one, steps, 5);
  const TrainingRecord reference = train(one, batches);
  if (!sanitized) {
    ASSERT_LT(reference.losses.back(), reference.losses.front()) << "it does not learn";
  }
  for (int t : tensors)
    for (int d : datas) {
      const RunConfig base_job = on_grid(one, t, 1, d);
      const TrainingRecord base = t * d == 1 ? reference : train(base_job, batches);
      expect_close(base, reference, name_of(base_job));
      for (int p : pipelines)
        for (int z : zeros) {
          if (p == 1 && z == 1) continue;
          const RunConfig other = on_grid(one, t, p, d, z);
          const TrainingRecord record = train(other, batches);
          expect_identical(record, base, name_of(other));
          EXPECT_EQ(record.planned_peak, record.measured_peak) << name_of(other);
        }
    }
}

class GridTest : public ::testing::TestWithParam<Architecture> {};

TEST_P(GridTest, EachAxisAlone) {
  check_grids(GetParam(), {2, 3}, {1}, {1}, {1});
  check_grids(GetParam(), {1}, {2, 3}, {1}, {0});
  check_grids(GetParam(), {1}, {1}, {2, 3}, {0});
}

TEST_P(GridTest, AllAxesTogether) {
  check_grids(GetParam(), {2}, {2}, {2}, {0, 1});
  check_grids(GetParam(), {4}, {3}, {3}, {1});
}

// How many ranks share the optimizer's state, and whether those are neighbours, changes no bit.
TEST_P(GridTest, ZeroShardRanksChangeNoBit) {
  RunConfig one = job(GetParam());
  const Batches batches = random_batches(one, 8, 13);
  RunConfig grid = on_grid(one, 2, 1, 6);
  const TrainingRecord base = train(grid, batches);
  for (int ranks : {1, 2, 3, 6}) {
    grid.parallel.zero_shard_ranks = ranks;
    const TrainingRecord record = train(grid, batches);
    expect_identical(record, base, fmt::format("zero_shard_ranks {}", ranks));
    EXPECT_EQ(record.planned_peak, record.measured_peak) << ranks;
  }
}

TEST_P(GridTest, SchedulesChangeNoBit) {
  const RunConfig one = job(GetParam());
  const Batches batches = random_batches(one, 3, 6);
  const TrainingRecord base = train(on_grid(one, 2, 1, 1), batches);
  for (int p : thread_sanitizer ? std::vector{1, 2} : std::vector{1, 2, 3, 4})
    for (const RunConfig& other : all_schedules(on_grid(one, 2, p, 1), p)) {
      const TrainingRecord record = train(other, batches);
      expect_identical(record, base, name_of(other));
      EXPECT_EQ(record.planned_peak, record.measured_peak) << name_of(other);
    }
}

// Seven layers can't be cut evenly, and stages without a whole number of chunks' work wait for each other.
TEST_P(GridTest, SchedulesOfUnevenStages) {
  RunConfig one = job(GetParam());
  one.model.num_hidden_layers = 7;
  const Batches batches = random_batches(one, 3, 13);
  const TrainingRecord base = train(one, batches);
  for (const RunConfig& other : all_schedules(one, 3))
    expect_identical(train(other, batches), base, name_of(other));
}

TEST_P(GridTest, FewerMicroBatchesThanStages) {
  RunConfig one = job(GetParam());
  one.training.micro_batch_size = 6;
  const Batches batches = random_batches(one, 3, 14);
  const TrainingRecord base = train(one, batches);
  for (const RunConfig& other : all_schedules(one, 4))
    expect_identical(train(other, batches), base, name_of(other));
}

// What a real stage keeps at once, not only what the schedule says.
TEST_P(GridTest, ActivationsInFlight) {
  const int stages = 4;
  RunConfig config = on_grid(job(GetParam()), 1, stages, 1);
  const auto kept = [&](const std::string& schedule, int64_t micro_batch_size, int stage) {
    config.parallel.schedule = schedule;
    config.training.micro_batch_size = micro_batch_size;
    return plan_rank(config, stage).in_flight;
  };
  for (int64_t size : {1, 2, 6, 12})
    for (int stage = 0; stage < stages; ++stage) {
      const int m = static_cast<int>(12 / size);
      EXPECT_EQ(kept("gpipe", size, stage), m);
      EXPECT_EQ(kept("1f1b", size, stage), std::min(m, stages - stage));
      EXPECT_EQ(kept("zb-h1", size, stage), std::min(m, stages));
    }
}

TEST_P(GridTest, ThreadsChangeNoBit) {
  const RunConfig one = on_grid(job(GetParam()), 1, 2, 1);
  const Batches batches = random_batches(one, 5, 7);
  expect_identical(train(one, batches, {}, 3), train(one, batches, {}, 1), "3 threads");
}

TEST_P(GridTest, TwoLayersOnTensorTwoPipelineTwo) {
  RunConfig one = job(GetParam());
  one.model.num_hidden_layers = 2;
  const Batches batches = random_batches(one, steps, 8);
  expect_close(train(on_grid(one, 2, 2, 1), batches), train(one, batches), "2 layers on 2 x 2");
}

TEST_P(GridTest, SevenLayersOnThreeStages) {
  RunConfig one = job(GetParam());
  one.model.num_hidden_layers = 7;
  const Batches batches = random_batches(one, 5, 9);
  expect_identical(train(on_grid(one, 1, 3, 1), batches), train(one, batches), "7 layers on 3 stages");
}

TEST_P(GridTest, TiedAndUntiedAcrossStages) {
  RunConfig one = job(GetParam());
  one.model.tie_word_embeddings = !one.model.tie_word_embeddings;
  const Batches batches = random_batches(one, steps, 10);
  const TrainingRecord reference = train(one, batches);
  expect_identical(train(on_grid(one, 1, 2, 1), batches), reference, "pipeline 2");
  expect_close(train(on_grid(one, 2, 2, 2), batches), reference, "2 x 2 x 2");
}

// On one stage the gradient of the looked up rows of a tied table is kept for these alone where the table is
// larger: with data 1 (144 tokens a step) and 4 (36) of 211 rows, with 4 of the 106 rows of two tensor ranks.
// On two stages it is the whole table's.
TEST_P(GridTest, TiedTableLargerThanAStep) {
  RunConfig one = job(GetParam());
  one.model.tie_word_embeddings = true;
  one.model.vocab_size = 211;
  one.training.micro_batch_size = 3;
  const Batches batches = random_batches(one, steps, 15);
  for (const int tensor : {1, 2})
    for (const int data : {1, 4}) {
      const RunConfig job = on_grid(one, tensor, 1, data);
      const TrainingRecord by_slot = train(job, batches);
      expect_identical(by_slot, train(on_grid(one, tensor, 2, data), batches), name_of(job));
      EXPECT_EQ(by_slot.planned_peak, by_slot.measured_peak) << name_of(job);
    }
}

// How the batch is cut must not matter: the first micro-batch's gradient and the last one's weigh the same.
TEST_P(GridTest, MicroBatchSizes) {
  RunConfig one = job(GetParam());
  const Batches batches = random_batches(one, steps, 11);
  const TrainingRecord reference = train(one, batches);
  for (int size : {2, 3, 4, 12}) {
    one.training.micro_batch_size = size;
    expect_close(train(one, batches), reference, fmt::format("micro-batch {}", size));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GridTest, ::testing::Values(Architecture::gpt2, Architecture::llama),
                         [](const auto& info) {
                           return info.param == Architecture::gpt2 ? "gpt2" : "llama";
                         });

// The whole matrix of the first issue: 72 grids for each architecture.
class FullGridTest : public ::testing::TestWithParam<Architecture> {};

TEST_P(FullGridTest, Matrix) {
  check_grids(GetParam(), {1, 2, 3, 4}, {1, 2, 3}, {1, 2, 3}, {0, 1});
}

// Every schedule on every tensor, data and pipeline degree: bit for bit what the same degrees give with one
// stage.
TEST_P(FullGridTest, Schedules) {
  RunConfig one = job(GetParam());
  one.model.num_hidden_layers = 9;
  const Batches batches = random_batches(one, steps, 15);
  const TrainingRecord reference = train(one, batches);
  for (int t : {1, 2})
    for (int d : {1, 2, 3}) {
      const RunConfig base_job = on_grid(one, t, 1, d);
      const TrainingRecord base = train(base_job, batches);
      expect_close(base, reference, name_of(base_job));
      for (int p : {1, 2, 3, 4})
        for (int z : {0, 1})
          for (const RunConfig& other : all_schedules(on_grid(one, t, p, d, z), p))
            expect_identical(train(other, batches), base, name_of(other));
    }
}

TEST_P(FullGridTest, ThirtyTwoRanks) {
  const RunConfig one = job(GetParam());
  const Batches batches = random_batches(one, steps, 12);
  expect_close(train(on_grid(one, 4, 4, 2), batches), train(one, batches), "4 x 4 x 2");
}

INSTANTIATE_TEST_SUITE_P(FullModels, FullGridTest, ::testing::Values(Architecture::gpt2, Architecture::llama),
                         [](const auto& info) {
                           return info.param == Architecture::gpt2 ? "gpt2" : "llama";
                         });

}  // namespace
}  // namespace triax::test
