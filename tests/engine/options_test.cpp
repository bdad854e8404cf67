// Sequence parallelism, recomputation and dropout: what they must not change, and what they must.

#include <gtest/gtest.h>

#include "support/sanitizer.h"
#include "support/small_job.h"
#include "support/training.h"

namespace triax::test {
namespace {

constexpr int64_t steps = sanitized ? 2 : 5;

RunConfig job(Architecture architecture) {
  RunConfig config = small_job(architecture, steps);
  config.training.micro_batch_size = 3;  // three sequences: parts of the rows begin in the middle of one
  return config;
}

RunConfig on_grid(RunConfig config, int tensor, int pipeline, int data, bool sequence_parallel = false) {
  config.parallel.tensor = tensor;
  config.parallel.pipeline = pipeline;
  config.parallel.data = data;
  config.parallel.sequence_parallel = sequence_parallel;
  return config;
}

RunConfig recomputing(RunConfig config, const std::string& what, bool partition = false) {
  config.training.recompute = what;
  config.training.partition_activations = partition;
  return config;
}

RunConfig dropping(RunConfig config, double probability = 0.2) {
  config.model.hidden_dropout = probability;
  return config;
}

class OptionsTest : public ::testing::TestWithParam<Architecture> {
 protected:
  RunConfig one_ = job(GetParam());
  Batches batches_ = random_batches(one_, steps, 21);
};

TEST_P(OptionsTest, SequenceParallelismIsOneRank) {
  const TrainingRecord one = train(one_, batches_);
  for (int t : {2, 3, 4}) {
    const TrainingRecord plain = train(on_grid(one_, t, 1, 1), batches_);
    const TrainingRecord cut = train(on_grid(one_, t, 1, 1, true), batches_);
    expect_close(cut, one, fmt::format("tensor {}, sequence-parallel", t));
    // Reductions add in rank order whatever they are called, so the first forward has the same bits.
    EXPECT_EQ(cut.losses[0], plain.losses[0]);
    EXPECT_LT(cut.measured_peak, plain.measured_peak);
    EXPECT_EQ(cut.measured_peak, cut.planned_peak);
  }
  expect_close(train(on_grid(one_, 2, 2, 2, true), batches_), one, "2 x 2 x 2, sequence-parallel");
}

TEST_P(OptionsTest, SequenceParallelismOverStagesAndZeroChangesNoBit) {
  const TrainingRecord base = train(on_grid(one_, 2, 1, 2, true), batches_);
  RunConfig other = on_grid(one_, 2, 2, 2, true);
  other.parallel.zero_stage = 0;
  expect_identical(train(other, batches_), base, "pipeline 2, zero 0");
}

TEST_P(OptionsTest, RecomputationChangesNoBit) {
  for (const bool sequence_parallel : {false, true}) {
    const RunConfig none = dropping(on_grid(one_, 2, 2, 1, sequence_parallel));
    const TrainingRecord base = train(none, batches_);
    for (const char* what : {"selective", "full"}) {
      const TrainingRecord record = train(recomputing(none, what), batches_);
      expect_identical(record, base, fmt::format("{}, sequence_parallel {}", what, sequence_parallel));
      EXPECT_EQ(record.measured_peak, record.planned_peak);
    }
    const TrainingRecord record = train(recomputing(none, "full", true), batches_);
    expect_identical(record, base, fmt::format("full in parts, sequence_parallel {}", sequence_parallel));
    EXPECT_EQ(record.measured_peak, record.planned_peak);
  }
}

// The schedules that hand chunks over on one stage, and that run the halves of the backward apart.
TEST_P(OptionsTest, RecomputationChangesNoBitUnderAnySchedule) {
  const TrainingRecord base = train(dropping(on_grid(one_, 2, 1, 1)), batches_);
  for (const auto& [schedule, pipeline, chunks] :
       {std::tuple{"zb-h1", 2, 1}, {"interleaved", 1, 2}, {"interleaved", 2, 2}})
    for (const auto& [what, partition] :
         {std::pair{"none", false}, {"selective", false}, {"full", false}, {"full", true}}) {
      RunConfig other = recomputing(dropping(on_grid(one_, 2, pipeline, 1)), what, partition);
      other.parallel.schedule = schedule;
      other.parallel.virtual_stages = chunks;
      const TrainingRecord record = train(other, batches_);
      expect_identical(record, base, fmt::format("{} on {}, {}", schedule, pipeline, what));
      EXPECT_EQ(record.measured_peak, record.planned_peak);
    }
}

TEST_P(OptionsTest, DropoutIsTheSameOnEveryGrid) {
  const RunConfig dropped = dropping(one_);
  const TrainingRecord one = train(dropped, batches_);
  EXPECT_NE(one.losses, train(one_, batches_).losses);
  expect_close(train(on_grid(dropped, 3, 2, 2), batches_), one, "3 x 2 x 2");
  expect_close(train(on_grid(dropped, 2, 1, 2, true), batches_), one, "2 x 1 x 2, sequence-parallel");
  expect_identical(train(on_grid(dropped, 1, 4, 1), batches_), one, "pipeline 4");
  RunConfig finer = dropped;
  finer.training.micro_batch_size = 1;
  expect_close(train(finer, batches_), one, "micro-batch 1");
}

// The backward is that of the forward with the same mask: central differences of the first step's loss along
// the gradient of one parameter at a time.
TEST_P(OptionsTest, DropoutsGradientIsThatOfItsLoss) {
  RunConfig dropped = dropping(one_, 0.3);
  dropped.optimizer.lr = dropped.lr_schedule.min_lr = 0;
  dropped.optimizer.weight_decay = 0;
  const Batches batch{batches_[0]};
  const TrainingRecord at = train(dropped, batch);
  for (const char* name :
       {"embed.tokens.weight", "layers.0.attention.q.weight", "layers.1.attention.out.weight",
        "layers.2.mlp_norm.weight", "layers.3.mlp.down.weight", "final_norm.weight"}) {
    const std::vector<float>& gradient = at.first_gradients.at(name);
    const double length = norm(gradient), reach = 0.02;
    double losses[2];
    for (const int side : {0, 1}) {
      Tensors weights = at.weights;  // those it started from: the learning rate is 0
      for (size_t i = 0; i < gradient.size(); ++i)
        weights.at(name)[i] += static_cast<float>((side ? reach : -reach) * gradient[i] / length);
      losses[side] = train(dropped, batch, weights).losses[0];
    }
    EXPECT_NEAR((losses[1] - losses[0]) / (2 * reach) / length, 1.0, 0.01) << name;
  }
}

TEST_P(OptionsTest, DropoutDiffersByStepAndSeedAndIsOffInEvaluations) {
  RunConfig still = one_;
  still.optimizer.lr = still.lr_schedule.min_lr = 0;
  still.optimizer.weight_decay = 0;
  const Batches twice{batches_[0], batches_[0]};
  const TrainingRecord plain = train(still, twice);
  EXPECT_EQ(plain.losses[0], plain.losses[1]);
  const TrainingRecord dropped = train(dropping(still), twice, plain.weights);
  EXPECT_NE(dropped.losses[0], plain.losses[0]);
  EXPECT_NE(dropped.losses[0], dropped.losses[1]);
  EXPECT_EQ(dropped.evaluation, plain.evaluation);
  RunConfig other_seed = dropping(still);
  other_seed.seed += 1;
  EXPECT_NE(train(other_seed, twice, plain.weights).losses[0], dropped.losses[0]);
}

// The memory table shows what recomputation is for.
TEST_P(OptionsTest, RecomputationShrinksTheActivations) {
  const auto activations = [](const RunConfig& config) {
    for (const MemoryLine& line : plan_rank(config, 0).memory)
      if (line.name == "activations") return line.bytes;
    return size_t{0};
  };
  const RunConfig none = on_grid(one_, 4, 2, 1);
  const size_t all = activations(none), selective = activations(recomputing(none, "selective")),
               full = activations(recomputing(none, "full")),
               parts = activations(recomputing(none, "full", true));
  EXPECT_LT(selective, all);
  EXPECT_LT(full, selective);
  EXPECT_LT(parts, full);
  EXPECT_GT(parts, 0U);
  EXPECT_LT(activations(on_grid(one_, 4, 2, 1, true)), all);
}

INSTANTIATE_TEST_SUITE_P(Models, OptionsTest, ::testing::Values(Architecture::gpt2, Architecture::llama),
                         [](const auto& info) {
                           return info.param == Architecture::gpt2 ? "gpt2" : "llama";
                         });

}  // namespace
}  // namespace triax::test
