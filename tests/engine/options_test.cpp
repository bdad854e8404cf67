// Sequence parallelism, recomputation and dropout: what they must not change, and what they must.

#include <gtest/gtest.h>

#include "support/sanitizer.h"
#include "support/training.h"

namespace triax::test {
namespace {

constexpr int64_t steps = thread_sanitizer ? 2 : 5;

RunConfig job(Architecture architecture) {
  RunConfig config;
  ModelConfig& m = config.model;
  m.architecture = architecture;
  m.vocab_size = 61;  // odd: rows are padded on every tensor degree above 1
  m.hidden_size = 48;
  m.num_hidden_layers = 4;
  m.num_attention_heads = 12;
  m.num_key_value_heads = architecture == Architecture::llama ? 1 : 12;
  m.intermediate_size = 96;
  m.max_position_embeddings = 16;
  m.tie_word_embeddings = architecture == Architecture::gpt2;
  m.initializer_range = 0.1;
  config.training.steps = steps;
  config.training.global_batch_size = 12;
  config.training.micro_batch_size = 3;  // three sequences: parts of the rows begin in the middle of one
  config.training.sequence_length = 12;
  config.optimizer.lr = 3e-3;
  config.lr_schedule.warmup_steps = 2;
  config.lr_schedule.decay_steps = steps;
  config.parallel = {};
  config.parallel.tensor = config.parallel.pipeline = config.parallel.data = 1;
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

INSTANTIATE_TEST_SUITE_P(Models, OptionsTest, ::testing::Values(Architecture::gpt2, Architecture::llama),
                         [](const auto& info) {
                           return info.param == Architecture::gpt2 ? "gpt2" : "llama";
                         });

}  // namespace
}  // namespace triax::test
