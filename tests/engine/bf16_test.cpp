// Jobs in bf16: close to fp32, close on every grid, and the same bits where nothing but the order of things
// changes.

#include <gtest/gtest.h>

#include "engine/verify.h"
#include "support/sanitizer.h"
#include "support/small_job.h"
#include "support/training.h"

namespace triax::test {
namespace {

constexpr int64_t steps = sanitized ? 2 : 6;

RunConfig job(Architecture architecture) {
  RunConfig config = small_job(architecture, steps);
  config.training.precision = "bf16";
  return config;
}

RunConfig on_grid(RunConfig config, int tensor, int pipeline, int data) {
  config.parallel.tensor = tensor;
  config.parallel.pipeline = pipeline;
  config.parallel.data = data;
  return config;
}

/// Each token follows from the one before but for one in ten, so that there is something to learn.
Batches learnable(const RunConfig& config, int64_t count) {
  Batches batches = random_batches(config, count, 31);
  for (auto& batch : batches)
    for (size_t i = 1; i < batch.size(); ++i)
      if (i % 10) batch[i] = static_cast<int32_t>((batch[i - 1] * 3 + 1) % config.model.vocab_size);
  return batches;
}

class Bf16Test : public ::testing::TestWithParam<Architecture> {
 protected:
  RunConfig one_ = job(GetParam());
  Batches batches_ = learnable(one_, steps);
};

TEST_P(Bf16Test, GridsAreCloseToOneRank) {
  const TrainingRecord one = train(one_, batches_);
  const VerifyBounds bounds = bounds_of(one_);
  const auto expect_close = [&](const RunConfig& config, const std::string& what) {
    const TrainingRecord grid = train(config, batches_);
    test::expect_close(grid, one, what, bounds.gradient, bounds.loss);
    EXPECT_EQ(grid.planned_peak, grid.measured_peak) << what;
  };
  expect_close(on_grid(one_, 1, 1, 3), "data 3");
  for (int tensor : {2, 3, 4}) expect_close(on_grid(one_, tensor, 1, 1), fmt::format("tensor {}", tensor));
  RunConfig all = on_grid(one_, 2, 2, 2);
  expect_close(all, "2 x 2 x 2");
  all.parallel.sequence_parallel = true;
  expect_close(all, "2 x 2 x 2, sequence-parallel");
}

TEST_P(Bf16Test, OptionsThatMustNotMatterChangeNoBit) {
  const RunConfig base_job = on_grid(one_, 2, 1, 2);
  const TrainingRecord base = train(base_job, batches_);
  const auto expect_identical = [&](const RunConfig& config, const std::string& what) {
    const TrainingRecord other = train(config, batches_);
    EXPECT_EQ(other, base) << what;
    EXPECT_EQ(other.exp_avg_sq, base.exp_avg_sq) << what;
    EXPECT_EQ(other.planned_peak, other.measured_peak) << what;
  };
  expect_identical(on_grid(one_, 2, 2, 2), "pipeline 2");
  RunConfig other = on_grid(one_, 2, 4, 2);
  other.parallel.schedule = "zb-h1";
  expect_identical(other, "pipeline 4, zb-h1");
  other = base_job;
  other.parallel.zero_stage = 0;
  expect_identical(other, "zero 0");
  other = base_job;
  other.parallel.zero_shard_ranks = 1;
  expect_identical(other, "zero_shard_ranks 1");
  for (const char* recompute : {"selective", "full"}) {
    other = base_job;
    other.training.recompute = recompute;
    expect_identical(other, recompute);
  }
}

TEST_P(Bf16Test, MemoryOfWeightsAndActivationsIsHalf) {
  RunConfig single = one_;
  single.training.precision = "fp32";
  const RankPlan half = plan_rank(one_, 0), full = plan_rank(single, 0);
  const auto bytes = [](const RankPlan& plan, const std::string& name) {
    for (const MemoryLine& line : plan.memory)
      if (line.name == name) return static_cast<double>(line.bytes);
    return 0.0;
  };
  EXPECT_NEAR(bytes(half, "weights") / bytes(full, "weights"), 0.5, 0.01);
  EXPECT_NEAR(bytes(half, "gradients") / bytes(full, "gradients"), 1.0, 1e-9);
  EXPECT_NEAR(bytes(half, "optimizer") / bytes(full, "optimizer"), 1.5, 0.01);  // and the masters
  EXPECT_LT(bytes(half, "activations") / bytes(full, "activations"), 0.6);      // statistics stay fp32
}

TEST_P(Bf16Test, LearnsWhatFp32Learns) {
  if (thread_sanitizer) GTEST_SKIP() << "numbers are the plain tree's business";
  constexpr int64_t many = 80;
  RunConfig config = on_grid(one_, 1, 2, 1);
  config.model.num_hidden_layers = 2;
  config.training.steps = config.lr_schedule.decay_steps = many;
  const Batches batches = learnable(config, many);
  const TrainingRecord half = train(config, batches);
  config.training.precision = "fp32";
  const TrainingRecord full = train(config, batches);
  ASSERT_LT(full.losses.back(), 0.6 * full.losses.front());
  EXPECT_NEAR(half.losses.back() / full.losses.back(), 1.0, 0.01);
}

INSTANTIATE_TEST_SUITE_P(Models, Bf16Test, ::testing::Values(Architecture::gpt2, Architecture::llama),
                         [](const auto& info) {
                           return info.param == Architecture::gpt2 ? "gpt2" : "llama";
                         });

}  // namespace
}  // namespace triax::test
